"""The verdict of the demo: what is lost, what came twice, and why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evenq.cli.demo.verdict import Consumed, Place, Stored, judge


def place(number: int) -> Place:
    return Place(f"broker-{'ab'[number % 2]}", number % 3, number)


def stored(*numbers: int) -> list[Stored]:
    return [Stored(f"o-{number}", place(number)) for number in numbers]


def consumed(who: str, *numbers: int) -> list[Consumed]:
    return [Consumed(who, f"o-{number}", place(number)) for number in numbers]


def keys(*numbers: int) -> list[str]:
    return [f"o-{number}" for number in numbers]


def test_all_is_well_when_everything_was_consumed_once() -> None:
    verdict = judge(keys(0, 1, 2), stored(0, 1, 2), consumed("c1", 0, 2) + consumed("Spark", 1))
    assert verdict.clean
    assert (verdict.sent, verdict.stored, verdict.consumed) == (3, 3, {"Spark": 1, "c1": 2})
    assert verdict.lines() == ["lost 0, twice 0"]


def test_what_was_confirmed_and_is_not_stored_is_lost() -> None:
    verdict = judge(keys(0, 1), stored(0), consumed("c1", 0))
    assert not verdict.clean
    assert verdict.missing == ("o-1",)
    assert verdict.lines() == ["lost 1, twice 0", "  o-1 was confirmed, and is not in the topic"]


def test_what_nobody_consumed_is_lost_and_named() -> None:
    verdict = judge(keys(0, 1), stored(0, 1), consumed("c1", 0))
    assert not verdict.clean
    assert verdict.lost == tuple(stored(1))
    assert verdict.lines()[1] == "  o-1 (broker-b:1 at 1) was consumed by nobody"


def test_what_came_twice_is_named_and_excused_only_by_a_kill() -> None:
    everything = consumed("c1", 0, 1) + consumed("c2", 1)
    in_hand, committed, elsewhere = (
        {"c2": {(place(1).broker, queue): offset}} for queue, offset in ((1, 1), (1, 2), (2, 0))
    )
    without, with_kill = (judge(keys(0, 1), stored(0, 1), everything, killed) for killed in ({}, in_hand))
    assert not without.clean
    assert str(without.twice[0]) == "o-1 (broker-b:1 at 1) by c1 and c2: nobody knows why"
    assert with_kill.clean
    assert with_kill.twice[0].why == "c2 was killed before it could tell that it was done"
    for innocent in (committed, elsewhere):
        assert not judge(keys(0, 1), stored(0, 1), everything, innocent).clean, "the kill has no part in it"


def test_a_kill_does_not_excuse_what_others_did_twice() -> None:
    again_by_survivors = consumed("c1", 0) + consumed("c3", 0)
    three_times = consumed("c1", 0) + consumed("c2", 0) + consumed("c3", 0)
    twice_by_the_victim = consumed("c2", 0, 0)
    two_victims = consumed("c2", 0) + consumed("c4", 0)
    killed = {name: {("broker-a", 0): 0} for name in ("c2", "c4")}
    for everything in (again_by_survivors, three_times, twice_by_the_victim, two_victims):
        assert not judge(keys(0), stored(0), everything, killed).clean


def test_a_message_that_is_stored_twice_is_not_one_that_was_consumed_twice() -> None:
    both = [*stored(0), Stored("o-0", place(7))]
    verdict = judge(keys(0), both, [Consumed("c1", "o-0", one.place) for one in both])
    assert verdict.clean
    assert (verdict.again, verdict.twice) == (("o-0",), ())
    assert "o-0 is in the topic more than once: an answer was lost" in verdict.lines()[1]


def test_what_was_consumed_and_never_stored_is_not_passed_over() -> None:
    verdict = judge(keys(0), stored(0), consumed("c1", 0, 1))
    assert not verdict.clean
    assert verdict.unknown == tuple(consumed("c1", 1))


def test_what_could_not_be_sent_is_told_of_and_is_not_lost() -> None:
    verdict = judge(keys(0), stored(0), consumed("c1", 0), failed={"o-1": "broker-b (3 ms): busy"})
    assert verdict.clean
    assert verdict.lines()[1:] == ["  o-1 could not be sent, and the producer knows: broker-b (3 ms): busy"]


def test_long_lists_are_cut_with_a_word_on_how_much_is_left() -> None:
    lines = judge(keys(*range(100)), stored(*range(100)), []).lines(most=3)
    assert lines[0] == "lost 100, twice 0"
    assert len(lines) == 5
    assert lines[-1] == "  and 97 more like it"


@given(
    st.sets(st.integers(0, 50), min_size=1),
    st.lists(st.tuples(st.sampled_from(["c1", "c2", "Spark"]), st.integers(0, 50)), max_size=120),
)
def test_counts_agree_with_counting_by_hand(there: set[int], done: list[tuple[str, int]]) -> None:
    everything = [one for who, number in done for one in consumed(who, number)]
    verdict = judge(keys(*there), stored(*there), everything)
    numbers = [number for _, number in done]
    assert {lost.key for lost in verdict.lost} == {f"o-{number}" for number in there - set(numbers)}
    assert {twice.key for twice in verdict.twice} == {f"o-{number}" for number in numbers if numbers.count(number) > 1}
    assert len(verdict.unknown) == sum(number not in there for number in numbers)
    assert sum(verdict.consumed.values()) == len(done)
    assert verdict.clean == (sorted(numbers) == sorted(there))
