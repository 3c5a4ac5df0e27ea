"""Reading queues from one end to the other.

Clients ask for some 32 messages at a time. Finding so few in the log costs more than the messages themselves where
those of several queues lie mixed; so whoever goes on where the last read of a queue ended has some more read at once,
which are kept for the next times. Messages never change: what was read stays true until it is gone from its queue.

What is damaged in the log ends a read like a missing message (:mod:`evenq.broker.store.intact`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.consumequeue import MISSING_SIZE, UNIT, UNITS, ConsumeQueue
from evenq.broker.store.intact import Damages, are_intact
from evenq.broker.store.selection import select

__all__ = ["Ahead", "ReadAhead"]

# Reads of so many messages at most are small, and so many of them are done at once.
_SMALL = 64
_TIMES = 16
# Bytes that are read at once, and queues that something is kept of: 8 MiB together.
_BYTES = 128 * 1024
_QUEUES = 64

# Reads pieces of the log, given where each begins and ends.
Positions = NDArray[np.int64]
Gather = Callable[[Positions, Positions], bytes]


class Ahead(NamedTuple):
    """Messages of a queue from ``offset`` on: their records, and where in these each one ends."""

    offset: int
    ends: Sequence[int]
    body: bytes

    def part(self, offset: int, count: int, max_bytes: int) -> tuple[bytes, int]:
        """The records from ``offset`` on, at most ``count`` and ``max_bytes`` but one at least, and their number.

        >>> ahead = Ahead(7, [2, 4, 6], b"aabbcc")
        >>> ahead.part(8, 9, 100), ahead.part(7, 2, 3), ahead.part(7, 9, 1)
        ((b'bbcc', 2), (b'aa', 1), (b'aa', 1))
        """
        ends, first = self.ends, offset - self.offset
        begin = ends[first - 1] if first else 0
        last = min(first + count, len(ends))
        if ends[last - 1] - begin > max_bytes:
            last = max(bisect_right(ends, begin + max_bytes, first, last), first + 1)
        return self.body[begin : ends[last - 1]], last - first


def _merged(starts: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """The same with what lies one behind the other as one piece.

    >>> starts, ends = _merged(np.array([100, 120, 200]), np.array([120, 150, 210]))
    >>> starts.tolist(), ends.tolist()
    ([100, 200], [150, 210])
    """
    gaps = np.flatnonzero(starts[1:] != ends[:-1])
    return np.append(starts[:1], starts[gaps + 1]), np.append(ends[gaps], ends[-1:])


class ReadAhead:
    """Reads queues, with ``gather`` to get pieces of the log, and remembers for those read last where that ended."""

    __slots__ = ("_damages", "_gather", "_kept", "_reached")

    def __init__(self, gather: Gather, damages: Damages) -> None:
        self._gather = gather
        self._damages = damages
        self._reached: OrderedDict[ConsumeQueue, int] = OrderedDict()
        self._kept: dict[ConsumeQueue, Ahead] = {}

    def read(self, queue: ConsumeQueue, offset: int, count: int, max_bytes: int) -> tuple[bytes, int]:
        """At most ``count`` messages from ``offset`` on, at most ``max_bytes`` of them but one at least; and how many
        they are: none where the first one is missing or damaged. The queue must have the first unit."""
        end = min(offset + count, queue.max)
        kept = self._kept.get(queue)
        if kept is None or offset < kept.offset or end > kept.offset + len(kept.ends):
            follows = count <= _SMALL and end < queue.max and self._reached.get(queue) == offset
            kept = self._look_ahead(queue, offset, count) if follows else None
        found = kept.part(offset, count, max_bytes) if kept is not None else self._read(queue, offset, count, max_bytes)
        self._note(queue, offset + found[1])
        return found

    def _read(self, queue: ConsumeQueue, offset: int, count: int, max_bytes: int) -> tuple[bytes, int]:
        units = queue.units(offset, count)
        selection = select(units, count, max_bytes)
        if not selection.found:
            return b"", 0
        body = self._gather(*selection.places)
        fields = np.frombuffer(units, UNITS, selection.found)
        if are_intact(body, fields):
            return body, selection.found
        intact = self._intact(queue, offset, units[: selection.found * UNIT.size])
        return body[: int(fields["size"][:intact].sum())], intact

    def _intact(self, queue: ConsumeQueue, offset: int, units: bytes) -> int:
        """How many records there are before the first damaged one."""
        damaged = self._damages.find(queue, offset, units)
        return damaged[0] if damaged else len(units) // UNIT.size

    def _look_ahead(self, queue: ConsumeQueue, offset: int, count: int) -> Ahead | None:
        """Read several times as many as were asked for, and keep them; None if messages are too large for that."""
        stored = queue.units(offset, count * _TIMES)
        units = np.frombuffer(stored, UNITS)
        # the first one tells what is to be expected of the others
        if int(units["size"][0]) * count > _BYTES // 2:
            return None
        sizes = units["size"].astype(np.int64)
        if sizes.max() == MISSING_SIZE:
            return None
        ends: list[int] = sizes.cumsum().tolist()
        fit = bisect_right(ends, _BYTES)
        if fit < min(count, len(ends)):
            return None
        starts, sizes = units["position"][:fit].astype(np.int64), sizes[:fit]
        body = self._gather(*_merged(starts, starts + sizes))
        if not are_intact(body, units[:fit]):
            return None
        self._kept[queue] = kept = Ahead(offset, ends[:fit], body)
        return kept

    def _note(self, queue: ConsumeQueue, reached: int) -> None:
        self._reached[queue] = reached
        self._reached.move_to_end(queue)
        if len(self._reached) > _QUEUES:
            oldest, _ = self._reached.popitem(last=False)
            self._kept.pop(oldest, None)

    def forget(self, queue: ConsumeQueue) -> None:
        """The queue is gone, or other messages will come at its end."""
        self._kept.pop(queue, None)
        self._reached.pop(queue, None)
