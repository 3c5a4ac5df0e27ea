"""Planning by its properties: every offset once, even tasks, fair shares, the same plan for the same input."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.read.ranges import QueueRange
from evenq.errors import OffsetsLost
from evenq.model import MessageQueue
from evenq.spark.offsets import Progress
from evenq.spark.planning import LARGE_TASK, Pacing, advance, in_doubt, is_news, plan, share, split, task_count

queues = st.builds(MessageQueue, st.sampled_from("tu"), st.sampled_from(["a", "b"]), st.integers(0, 7))
A, B, C = (MessageQueue("t", "b", number) for number in range(3))


@st.composite
def range_lists(draw: st.DrawFn) -> list[QueueRange]:
    sizes = draw(st.dictionaries(queues, st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1))
    return [QueueRange(queue, start, start + size) for queue, (start, size) in sizes.items()]


def refuse(loss: OffsetsLost) -> None:
    raise loss


# Tasks


@given(range_lists(), st.integers(1, 40))
def test_tasks_hold_every_offset_once_and_are_even(ranges: list[QueueRange], tasks: int) -> None:
    made = split(ranges, tasks)
    offsets = [(part.queue, offset) for task in made for part in task for offset in range(part.start, part.stop)]
    wanted = [(part.queue, offset) for part in sorted(ranges) for offset in range(part.start, part.stop)]
    assert offsets == wanted
    sizes = [sum(map(len, task)) for task in made]
    assert len(sizes) == min(tasks, len(wanted))
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(len(part) for task in made for part in task)


@given(range_lists(), st.integers(1, 40), st.randoms())
def test_the_order_of_ranges_does_not_matter(ranges: list[QueueRange], tasks: int, shuffler: random.Random) -> None:
    shuffled = list(ranges)
    shuffler.shuffle(shuffled)
    assert split(shuffled, tasks) == split(ranges, tasks)


@given(st.integers(0, 10**7), st.integers(1, 64), st.none() | st.integers(1, 100))
def test_there_are_enough_tasks_and_none_is_empty(offsets: int, queue_count: int, least: int | None) -> None:
    tasks = task_count(offsets, queue_count, at_least=least)
    assert min(offsets, max(least or 0, -(-offsets // LARGE_TASK))) <= tasks <= offsets


@given(range_lists(), st.integers(1, 50))
def test_no_task_is_larger_than_allowed(ranges: list[QueueRange], largest: int) -> None:
    assert all(sum(map(len, task)) <= largest for task in plan(ranges, largest=largest))


def test_nothing_to_read_makes_no_task() -> None:
    assert plan([QueueRange(A, 5, 5)], at_least=4) == []


def test_one_large_queue_is_not_one_slow_task() -> None:
    tasks = plan([QueueRange(A, 0, 1_000_000), QueueRange(B, 0, 10)])
    assert len(tasks) > 2
    assert max(sum(map(len, task)) for task in tasks) <= LARGE_TASK


# Shares


@given(st.dictionaries(queues, st.integers(0, 10**6), min_size=1), st.integers(1, 10**6))
def test_a_limit_is_used_up_and_shared_by_backlog(backlogs: dict[MessageQueue, int], limit: int) -> None:
    shares = share(limit, backlogs)
    total = sum(backlogs.values())
    assert sum(shares.values()) == min(limit, total)
    assert shares.keys() == backlogs.keys()
    for queue, backlog in backlogs.items():
        assert 0 <= shares[queue] <= backlog
        if total > limit:
            assert abs(shares[queue] - limit * backlog / total) < 1


# Micro-batches


@given(
    st.dictionaries(queues, st.integers(0, 500), min_size=1),
    st.lists(st.dictionaries(queues, st.integers(0, 200)), max_size=6),
    st.none() | st.integers(1, 300),
)
def test_batches_follow_one_another_without_gap_or_overlap(
    begin: dict[MessageQueue, int], growth: list[dict[MessageQueue, int]], limit: int | None
) -> None:
    ends = dict(begin)
    done = Progress.at(begin)
    for step in growth:
        for queue, more in step.items():
            ends[queue] = ends.get(queue, 0) + more
        earliest = dict.fromkeys(in_doubt(done, ends), 0)
        ahead = advance(done, ends, earliest, limit, refuse)
        reached = done.reached
        for part in ahead.ranges:
            assert part.start == reached.get(part.queue, 0)
            assert part.start <= part.stop <= ends[part.queue]
        read = sum(map(len, ahead.ranges))
        backlog = sum(ends.values()) - sum(reached.get(queue, 0) for queue in ends)
        assert read == (backlog if limit is None else min(limit, backlog))
        done = ahead


def test_a_new_queue_is_read_from_its_first_offset() -> None:
    done = Progress.at({A: 10})
    assert in_doubt(done, {A: 12, B: 7}) == {B}
    ahead = advance(done, {A: 12, B: 7}, {B: 3}, None, refuse)
    assert ahead.ranges == (QueueRange(A, 10, 12), QueueRange(B, 3, 7))


def test_a_queue_that_is_away_keeps_its_place() -> None:
    done = Progress.at({A: 10, B: 20})
    ahead = advance(done, {B: 25}, {}, None, refuse)
    assert ahead.reached == {A: 10, B: 25}
    assert advance(ahead, {A: 11, B: 25}, {}, None, refuse).ranges == (QueueRange(A, 10, 11), QueueRange(B, 25, 25))


def test_a_queue_that_began_anew_is_a_loss() -> None:
    done = Progress.at({A: 10})
    with pytest.raises(OffsetsLost, match="offsets 4 to 9"):
        advance(done, {A: 4}, {A: 0}, None, refuse)
    losses: list[OffsetsLost] = []
    assert advance(done, {A: 4}, {A: 1}, None, losses.append).ranges == (QueueRange(A, 1, 4),)
    assert len(losses) == 1


def test_what_is_worth_a_micro_batch() -> None:
    done = Progress.at({A: 10})
    assert not is_news(done, Progress.at({A: 10}))
    assert not is_news(done, Progress.at({A: 10, B: 0}))
    assert is_news(done, Progress((QueueRange(A, 10, 11),)))
    assert is_news(done, Progress.at({A: 0}))


# When


def test_a_micro_batch_waits_for_enough_but_not_for_ever() -> None:
    now = 100.0
    pacing = Pacing(10, 60.0, clock=lambda: now)
    few, many = Progress((QueueRange(A, 0, 9),)), Progress((QueueRange(A, 0, 6), QueueRange(B, 0, 4)))
    assert pacing.enough(few), "the first one does not wait"
    pacing.went()
    assert not pacing.enough(few)
    assert pacing.enough(many)
    now = 160.0
    assert pacing.enough(few)
    assert Pacing(None, 60.0, clock=lambda: now).enough(few)
