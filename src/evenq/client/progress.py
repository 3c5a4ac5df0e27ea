"""How far the consumption of one queue is: which offsets are in somebody's hands, and what may be committed. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from evenq.errors import StateError

__all__ = ["Progress"]


class Progress:
    """The offsets of one queue between the pull and the commit.

    Messages end in any order; what may be committed is the lowest offset that has not ended, or, when all have,
    the offset of the next pull. It never goes backwards.

    >>> progress = Progress(start=10)
    >>> progress.pulled([(10, 100), (11, 100), (13, 100)], next_offset=20)
    >>> progress.done([11, 13]); progress.committable
    10
    >>> progress.done([10]); progress.committable
    20
    """

    __slots__ = ("_in_hand", "bytes", "next_offset")

    def __init__(self, start: int) -> None:
        # offset -> size, ascending, because pulls ascend; a linked list, so that the lowest is found at once
        self._in_hand: OrderedDict[int, int] = OrderedDict()
        self.bytes = 0
        self.next_offset = start

    def pulled(self, messages: Iterable[tuple[int, int]], next_offset: int) -> None:
        """Take (offset, size) of messages that a pull brought, and where the next pull begins."""
        for offset, size in messages:
            if offset < self.next_offset:
                raise StateError(f"offset {offset} was pulled, but {self.next_offset} was to come next")
            self.next_offset = offset + 1
            self._in_hand[offset] = size
            self.bytes += size
        if next_offset < self.next_offset:
            raise StateError(f"the next pull would begin at {next_offset}, before {self.next_offset}")
        self.next_offset = next_offset

    def done(self, offsets: Iterable[int]) -> None:
        """These have ended: consumed, or handed to the retry topic. An offset that is not in hand is ignored."""
        for offset in offsets:
            self.bytes -= self._in_hand.pop(offset, 0)

    @property
    def count(self) -> int:
        return len(self._in_hand)

    @property
    def last(self) -> int:
        """The highest offset in hand; where there is none, the one before the next pull."""
        return next(reversed(self._in_hand), self.next_offset - 1)

    @property
    def span(self) -> int:
        """How far the highest offset in hand is ahead of the lowest: large when one message blocks."""
        if not self._in_hand:
            return 0
        return self.last - next(iter(self._in_hand))

    @property
    def committable(self) -> int:
        return next(iter(self._in_hand), self.next_offset)
