"""How far the consumption of one queue is: what waits, which batches are in somebody's hands, what may be committed.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from evenq.errors import StateError
from evenq.protocol.view import MessageView

__all__ = ["Progress"]

_size = attrgetter("store_size")


class Progress:
    """The messages of one queue between the pull and the commit.

    They are taken in the order of their offsets, in batches that begin and end as one. So all that waits lies behind
    all that was taken, and what may be committed is where the first batch begins that has not ended. Nothing is done
    for single messages: there are many.

    ::

        Progress(start=10)                                  may commit 10
            .pulled(messages 10, 11 and 13, next 20)                   10
            .take(2), .take(2), .done(the second of them)              10
            .done(the first)                                           20
    """

    __slots__ = ("_taken", "_waiting", "bytes", "count", "next_offset")

    def __init__(self, start: int) -> None:
        self._waiting: deque[MessageView] = deque()
        # the batches that were taken and have not ended: first offset -> (last offset, bytes, the batch), ascending
        self._taken: dict[int, tuple[int, int, Sequence[MessageView]]] = {}
        # of all that waits or was taken
        self.count = 0
        self.bytes = 0
        self.next_offset = start

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def pulled(self, messages: Sequence[MessageView], next_offset: int) -> None:
        """Take what a pull brought, in order, and where the next pull begins."""
        if messages:
            first, last = messages[0].queue_offset, messages[-1].queue_offset
            if first < self.next_offset:
                raise StateError(f"offset {first} was pulled, but {self.next_offset} was to come next")
            self._waiting += messages
            self.count += len(messages)
            self.bytes += sum(map(_size, messages))
            self.next_offset = last + 1
        if next_offset < self.next_offset:
            raise StateError(f"the next pull would begin at {next_offset}, before {self.next_offset}")
        self.next_offset = next_offset

    def take(self, count: int) -> list[MessageView]:
        """The next messages, at most ``count``; none where none wait."""
        waiting = self._waiting
        if len(waiting) <= count:
            batch = list(waiting)
            waiting.clear()
        else:
            batch = list(islice(waiting, count))
            for _ in batch:
                waiting.popleft()
        if batch:
            self._taken[batch[0].queue_offset] = batch[-1].queue_offset, sum(map(_size, batch)), batch
        return batch

    def done(self, batch: Sequence[MessageView]) -> None:
        """A batch that :meth:`take` gave has ended: consumed, or handed to the retry topic.

        A batch that was taken from another progress of the queue is ignored: after a reset another batch may have been
        taken at the same offset, and it still runs.
        """
        ended = self._end(batch)
        if ended is not None:
            self.count -= len(batch)
            self.bytes -= ended

    def give_back(self, batch: Sequence[MessageView], again: Sequence[MessageView] | None = None) -> None:
        """A batch that :meth:`take` gave waits again, before all others, in the form of ``again`` if that is given.
        There must be none that was taken after it. A batch from another progress is ignored as by :meth:`done`."""
        if self._end(batch) is not None:
            self._waiting.extendleft(reversed(batch if again is None else again))

    def _end(self, batch: Sequence[MessageView]) -> int | None:
        """Forget a taken batch; gives its bytes, None where it was not taken from here."""
        first = batch[0].queue_offset
        taken = self._taken.get(first)
        if taken is None or taken[2] is not batch:
            return None
        del self._taken[first]
        return taken[1]

    def forget(self) -> None:
        """Forget what waits: somebody else will read it again."""
        if self._waiting:
            self.count -= len(self._waiting)
            self.bytes -= sum(map(_size, self._waiting))
            self.next_offset = self._waiting[0].queue_offset
            self._waiting.clear()

    @property
    def committable(self) -> int:
        if self._taken:
            return next(iter(self._taken))
        return self._waiting[0].queue_offset if self._waiting else self.next_offset

    @property
    def last(self) -> int:
        """The highest offset in hand; where there is none, the one before the next pull."""
        if self._waiting:
            return self._waiting[-1].queue_offset
        return next(reversed(self._taken.values()))[0] if self._taken else self.next_offset - 1

    @property
    def span(self) -> int:
        """How far the highest offset in hand is ahead of the lowest: large when one batch blocks."""
        return self.last - self.committable if self.count else 0
