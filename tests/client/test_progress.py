import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.progress import Progress
from evenq.errors import StateError


def test_commits_up_to_the_lowest_offset_that_has_not_ended() -> None:
    progress = Progress(5)
    progress.pulled([(5, 10), (6, 10), (7, 10)], next_offset=8)
    progress.done([6])
    assert progress.committable == 5
    progress.done([5])
    assert progress.committable == 7
    progress.done([7])
    assert (progress.committable, progress.count, progress.bytes, progress.span) == (8, 0, 0, 0)


def test_filtered_messages_are_skipped_over() -> None:
    progress = Progress(0)
    progress.pulled([], next_offset=40)
    assert progress.committable == 40


def test_refuses_to_go_backwards() -> None:
    progress = Progress(10)
    with pytest.raises(StateError, match="offset 9 was pulled, but 10"):
        progress.pulled([(9, 1)], next_offset=11)
    with pytest.raises(StateError, match="next pull would begin at 3, before 10"):
        progress.pulled([], next_offset=3)


@given(st.data())
def test_committable_never_goes_backwards_and_never_passes_what_is_in_hand(data: st.DataObject) -> None:
    progress = Progress(0)
    in_hand: set[int] = set()
    seen = 0
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            gaps = data.draw(st.lists(st.integers(0, 3), max_size=6))
            at, fresh = progress.next_offset, []
            for gap in gaps:
                at += gap
                fresh.append((at, 7))
                at += 1
            progress.pulled(fresh, next_offset=at + data.draw(st.integers(0, 3)))
            in_hand |= {offset for offset, _ in fresh}
        elif in_hand:
            ended = data.draw(st.sets(st.sampled_from(sorted(in_hand))))
            progress.done(ended)
            in_hand -= ended
        assert progress.committable >= seen
        seen = progress.committable
        assert progress.committable == min(in_hand, default=progress.next_offset)
        assert (progress.count, progress.bytes) == (len(in_hand), 7 * len(in_hand))
