"""Planning: offsets in, partitions out. Pure; needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from evenq.client.read.ranges import QueueRange
from evenq.errors import OffsetsLost
from evenq.model import MessageQueue
from evenq.spark.offsets import Progress

__all__ = ["Pacing", "advance", "in_doubt", "is_news", "plan", "share", "split", "task_count"]

# Below the first a task is mostly its own start-up; above the second it is too long to leave to one core.
SMALL_TASK = 5_000
LARGE_TASK = 250_000

Offsets = Mapping[MessageQueue, int]


def plan(
    ranges: Sequence[QueueRange], *, at_least: int | None = None, largest: int | None = None
) -> list[tuple[QueueRange, ...]]:
    """The tasks that read the ranges; none when there is nothing to read."""
    filled = [part for part in ranges if part]
    return split(filled, task_count(sum(map(len, filled)), len(filled), at_least=at_least, largest=largest))


def task_count(offsets: int, queues: int, *, at_least: int | None = None, largest: int | None = None) -> int:
    """How many tasks: one per queue, fewer where there is little to read, more where there is much.

    ``at_least`` so many, and so many that none has more than ``largest`` offsets.

    >>> task_count(100, queues=8), task_count(1_000_000, queues=8), task_count(2_000_000, queues=1)
    (1, 8, 8)
    >>> task_count(100, queues=8, at_least=3), task_count(100, queues=8, largest=7)
    (3, 15)
    """
    useful = min(queues, -(-offsets // SMALL_TASK))
    return min(offsets, max(useful, -(-offsets // min(LARGE_TASK, largest or LARGE_TASK)), at_least or 0))


def split(ranges: Sequence[QueueRange], tasks: int) -> list[tuple[QueueRange, ...]]:
    """Cut and join the ranges to that many tasks whose sizes differ by one offset at most.

    The ranges are laid end to end in the order of their queues and cut at even distances, so the same ranges always
    make the same tasks.

    >>> a, b = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
    >>> [[len(part) for part in task] for task in split([QueueRange(a, 0, 10), QueueRange(b, 5, 7)], 3)]
    [[4], [4], [2, 2]]
    """
    if tasks <= 0:
        return []
    laid = sorted(part for part in ranges if part)
    begins = [0, *accumulate(map(len, laid))]
    cuts = [begins[-1] * n // tasks for n in range(tasks + 1)]
    return [tuple(_overlaps(laid, begins, low, high)) for low, high in pairwise(cuts) if low < high]


def _overlaps(laid: Sequence[QueueRange], begins: Sequence[int], low: int, high: int) -> Iterator[QueueRange]:
    for part, begin in zip(laid, begins, strict=False):
        start, stop = max(low, begin), min(high, begin + len(part))
        if start < stop:
            yield QueueRange(part.queue, part.start + start - begin, part.start + stop - begin)


def share(limit: int, backlogs: Offsets) -> dict[MessageQueue, int]:
    """Share ``limit`` out by backlog: all of it, nobody more than he has, each within one of his exact share.

    >>> a, b = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
    >>> list(share(10, {a: 90, b: 30}).values())
    [8, 2]
    """
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    shares = {queue: limit * backlog // total for queue, backlog in backlogs.items()}
    # what rounding left over goes to those that it took most from; the queue's order settles ties
    by_loss = sorted(backlogs, key=lambda queue: (-(limit * backlogs[queue] % total), queue))
    for queue in by_loss[: limit - sum(shares.values())]:
        shares[queue] += 1
    return shares


def in_doubt(done: Progress, latest: Offsets) -> set[MessageQueue]:
    """The queues whose first offset must be known to go on: new ones, and those that end before where we are."""
    reached = done.reached
    return {queue for queue, end in latest.items() if end < reached.get(queue, end + 1)}


def advance(
    done: Progress,
    latest: Offsets,
    earliest: Offsets,
    limit: int | None,
    on_loss: Callable[[OffsetsLost], None],
) -> Progress:
    """The next micro-batch: from where the last one ended to the ``latest`` offsets, or ``limit`` offsets of that.

    New queues begin at their ``earliest`` offset. A queue that ends before where we are lost what we have read: it is
    a loss, and where that is allowed it is read anew. A queue that is not there now keeps its place.
    """
    begins = done.reached
    for queue in sorted(in_doubt(done, latest)):
        if queue in begins:
            on_loss(OffsetsLost(queue, latest[queue], begins[queue], earliest[queue], latest[queue]))
        begins[queue] = earliest[queue]
    backlogs = {queue: max(0, latest.get(queue, begin) - begin) for queue, begin in sorted(begins.items())}
    granted = backlogs if limit is None else share(limit, backlogs)
    return Progress(tuple(QueueRange(queue, begins[queue], begins[queue] + granted[queue]) for queue in backlogs))


def is_news(done: Progress, ahead: Progress) -> bool:
    """Whether there is a reason for a micro-batch: something to read, or a queue that does not keep its place."""
    return any(ahead.ranges) or not ahead.reached.items() >= done.reached.items()


class Pacing:
    """Lets micro-batches wait until there is enough to read, or until they have waited long enough.

    >>> pacing = Pacing(10, 60.0, clock=lambda: 0.0)
    >>> five = Progress((QueueRange(MessageQueue("t", "b", 0), 0, 5),))
    >>> first = pacing.enough(five)
    >>> pacing.went(); first, pacing.enough(five)
    (True, False)
    """

    def __init__(self, least: int | None, delay: float, clock: Callable[[], float]) -> None:
        self._least = least
        self._delay = delay
        self._clock = clock
        # when the last micro-batch began; the first one does not wait
        self._went: float | None = None

    def enough(self, ahead: Progress) -> bool:
        """Whether there is a reason to begin now with what lies ahead."""
        if self._least is None or self._went is None:
            return True
        return sum(map(len, ahead.ranges)) >= self._least or self._clock() - self._went >= self._delay

    def went(self) -> None:
        self._went = self._clock()
