import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.consume.progress import Progress
from evenq.errors import StateError
from evenq.protocol.view import MessageView
from tests.client.consume.test_holding import message


def test_commits_up_to_the_first_batch_that_has_not_ended() -> None:
    progress = Progress(5)
    progress.pulled([message(n, size=10) for n in (5, 6, 8)], next_offset=9)
    first, second, third = (progress.take(1) for _ in range(3))
    progress.done(second)
    assert (progress.committable, progress.count, progress.bytes, progress.span) == (5, 2, 20, 3)
    progress.done(first)
    assert progress.committable == 8
    progress.done(third)
    assert (progress.committable, progress.count, progress.bytes, progress.span) == (9, 0, 0, 0)


def test_filtered_messages_are_skipped_over() -> None:
    progress = Progress(0)
    progress.pulled([], next_offset=40)
    assert progress.committable == 40


def test_refuses_to_go_backwards() -> None:
    progress = Progress(10)
    with pytest.raises(StateError, match="offset 9 was pulled, but 10"):
        progress.pulled([message(9)], next_offset=11)
    with pytest.raises(StateError, match="next pull would begin at 3, before 10"):
        progress.pulled([], next_offset=3)


def test_what_ends_after_a_fresh_start_counts_for_nothing() -> None:
    progress = Progress(0)
    progress.done([message(3)])
    progress.give_back([message(3)])
    assert (progress.count, progress.waiting, progress.committable) == (0, 0, 0)


@given(st.data())
def test_committable_never_goes_backwards_and_never_passes_what_is_in_hand(data: st.DataObject) -> None:
    progress = Progress(0)
    waiting: list[int] = []
    taken: list[list[MessageView]] = []
    seen = 0
    for _ in range(data.draw(st.integers(1, 20))):
        match data.draw(st.sampled_from(["pull", "take", "done", "give back"])):
            case "pull":
                at, fresh = progress.next_offset, []
                for gap in data.draw(st.lists(st.integers(0, 3), max_size=6)):
                    at += gap
                    fresh.append(message(at, size=7))
                    at += 1
                progress.pulled(fresh, next_offset=at + data.draw(st.integers(0, 3)))
                waiting += [each.queue_offset for each in fresh]
            case "take":
                batch = progress.take(data.draw(st.integers(1, 4)))
                assert [each.queue_offset for each in batch] == waiting[: len(batch)]
                del waiting[: len(batch)]
                taken += [batch] if batch else []
            case "done" if taken:
                progress.done(taken.pop(data.draw(st.integers(0, len(taken) - 1))))
            case "give back" if taken:
                batch = taken.pop()
                progress.give_back(batch)
                waiting[:0] = [each.queue_offset for each in batch]
        in_hand = [each.queue_offset for batch in taken for each in batch] + waiting
        assert progress.committable >= seen
        seen = progress.committable
        assert progress.committable == min(in_hand, default=progress.next_offset)
        assert (progress.count, progress.bytes) == (len(in_hand), 7 * len(in_hand))
        assert progress.span == (max(in_hand) - min(in_hand) if in_hand else 0)
    progress.forget()
    in_hand = [each.queue_offset for batch in taken for each in batch]
    assert progress.committable == min(in_hand + waiting, default=progress.next_offset)
    assert (progress.count, progress.bytes) == (len(in_hand), 7 * len(in_hand))


def test_a_batch_that_was_taken_elsewhere_ends_no_batch_of_the_same_offset() -> None:
    before, progress = Progress(3), Progress(3)
    for each in (before, progress):
        each.pulled([message(3, size=10), message(4, size=10)], next_offset=5)
    old, new = before.take(1), progress.take(2)
    progress.done(old)
    progress.give_back(old)
    assert (progress.committable, progress.count, progress.bytes, progress.waiting) == (3, 2, 20, 0)
    progress.done(new)
    assert (progress.committable, progress.count, progress.bytes) == (5, 0, 0)
