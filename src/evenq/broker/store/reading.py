"""Reading a queue: which messages a read gives, their records from the commit log, and whether these are whole.

A read chooses messages by the units of the consume queue alone (:func:`select`), then gets their records in as few
pieces as possible.

Clients ask for some 32 messages at a time. Finding so few in the log costs more than the messages themselves where
those of several queues lie mixed; so whoever goes on where the last read of a queue ended has some more read at once,
which are kept for the next times (:class:`ReadAhead`). Messages never change: what was read stays true until it is gone
from its queue.

Damage in the log shows when its records are read at a start, but only behind the starting point. What is damaged before
it, or while the broker runs, is found here (:class:`Damages`). A record whose size, magic number or log offset is wrong
cannot be decoded: a reader would ask for it again and again. So it counts as missing, and ends a read.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.consumequeue import MISSING_SIZE, UNIT, UNITS, ConsumeQueue
from evenq.protocol.recordform import MAGIC_V1, MAGIC_V2
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, MIN_RECORD
from evenq.protocol.windows import windows

__all__ = ["Ahead", "Damages", "ReadAhead", "Selection", "are_intact", "is_intact", "select"]

# Reads of so many messages at most are small, and so many of them are done at once.
_SMALL = 64
_TIMES = 16
# Bytes that are read at once, and queues that something is kept of: 8 MiB together.
_BYTES = 128 * 1024
_QUEUES = 64

# Places in the log.
Positions = NDArray[np.int64]


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

    __slots__ = ("_damages", "_kept", "_reached")

    def __init__(self, damages: Damages) -> None:
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
        body = self._damages.gather(selection.places, np.frombuffer(units, UNITS, selection.found))
        if body is not None:
            return body, selection.found
        body, found, _ = self._damages.read_singly(queue, offset, units, count, max_bytes)
        return body, found

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
        body = self._damages.gather(_merged(starts, starts + sizes), units[:fit])
        if body is None:
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


# Units that are looked at together: as many as clients usually ask for.
_TOGETHER = 32
# their positions and sizes
_BLOCK = struct.Struct(">" + "qi8x" * _TOGETHER)
_BLOCK_SIZE = _BLOCK.size


class Selection(NamedTuple):
    """Pieces of the commit log by position and size, how many messages they are, and how many units were looked at."""

    pieces: list[tuple[int, int]]
    found: int
    seen: int

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the pieces begin, and where they end."""
        starts, sizes = np.array(self.pieces, np.int64).reshape(-1, 2).T
        return starts, starts + sizes


def select(units: bytes, count: int, max_bytes: int, codes: Collection[int] | None = None) -> Selection:
    """The first ``count`` messages, at most ``max_bytes`` of them but one at least; with ``codes`` only those whose tag
    has one of these hashes. Messages that lie one behind the other in the log may be one piece.

    Units of missing messages are passed over with ``codes``, and without them the first one is the end: what is found
    has offsets without a gap then.

    >>> units = UNIT.pack(100, 20, 7) + UNIT.pack(120, 30, 8) + UNIT.pack(200, 10, 7)
    >>> select(units, 2, 1000)
    Selection(pieces=[(100, 50)], found=2, seen=2)
    >>> select(units, 2, 1000, {7})
    Selection(pieces=[(100, 20), (200, 10)], found=2, seen=3)
    """
    pieces: list[tuple[int, int]] = []
    found = total = 0
    # a block with a missing message never has room then
    max_bytes = min(max_bytes, MISSING_SIZE - 1)
    if codes is None:
        found, total = _select_blocks(units, count, max_bytes, pieces)
        if found == count or found * UNIT.size == len(units):
            return Selection(pieces, found, found)
    seen = found
    start = end = -1
    for position, size, code in UNIT.iter_unpack(units[found * UNIT.size :]):
        if size == MISSING_SIZE:
            if codes is None:
                break
        elif codes is None or code in codes:
            if found == count or (found and total + size > max_bytes):
                break
            if position != end:
                if end >= 0:
                    pieces.append((start, end - start))
                start = position
            end = position + size
            found += 1
            total += size
        seen += 1
    if end >= 0:
        pieces.append((start, end - start))
    return Selection(pieces, found, seen)


def _select_blocks(units: bytes, count: int, max_bytes: int, pieces: list[tuple[int, int]]) -> tuple[int, int]:
    """Choose whole blocks while they fit, onto ``pieces``; how many messages those are, and how many bytes."""
    found = total = 0
    for at in range(0, min(count * UNIT.size, len(units)) - _BLOCK_SIZE + 1, _BLOCK_SIZE):
        block = _BLOCK.unpack_from(units, at)
        positions, sizes = block[::2], block[1::2]
        size = sum(sizes)
        if total + size > max_bytes:
            break
        # messages never overlap: if they have the room of all of them together, there is nothing between them
        if positions[-1] + sizes[-1] - positions[0] == size:
            pieces.append((positions[0], size))
        else:
            pieces += zip(positions, sizes, strict=True)
        found += _TOGETHER
        total += size
    return found, total


log = logging.getLogger(__name__)

_MAGICS = MAGIC_V1, MAGIC_V2
_USUAL = MAGIC_V1.to_bytes(4)
_HEAD = struct.Struct(f">iI{COMMIT_LOG_OFFSET_AT - 8}xq")
_HEADS = np.dtype(
    {
        "names": ["size", "magic", "position"],
        "formats": [">i4", ">u4", ">i8"],
        "offsets": [0, 4, COMMIT_LOG_OFFSET_AT],
        "itemsize": _HEAD.size,
    }
)

# Damaged places that were reported, and how many lines one read writes.
_REPORTED = 4096
_LINES = 5


def are_intact(body: bytes, units: NDArray[np.void]) -> bool:
    """Whether ``body`` holds the records of these units, one behind the other."""
    sizes = units["size"].tobytes()
    count = len(units)
    size = int.from_bytes(sizes[:4])
    if sizes == sizes[:4] * count:
        if size < MIN_RECORD or len(body) != size * count:
            return False
        heads = np.ndarray((count,), _HEADS, body, strides=(size,))
    else:
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(units["size"], out=starts[1:])
        if starts[-1] != len(body) or units["size"].min() < MIN_RECORD:
            return False
        starts = starts[:-1]
        heads = windows(memoryview(body), _HEAD.size)[starts].view(_HEADS)
    return (
        heads["size"].tobytes() == sizes
        and heads["position"].tobytes() == units["position"].tobytes()
        and (heads["magic"].tobytes() == _USUAL * count or bool(np.isin(heads["magic"], _MAGICS).all()))
    )


def is_intact(log: CommitLog, position: int, size: int) -> bool:
    """Whether a record of this size begins at ``position``, which may be any number."""
    if not log.start <= position < log.filled or not log.holds(position):
        return False
    head = log.read(position, min(position + _HEAD.size, log.file_end(position)))
    if len(head) < _HEAD.size:
        return False
    own_size, magic, own_position = _HEAD.unpack(head)
    return bool(own_size == size and own_position == position and magic in _MAGICS)


class Damages:
    """Finds the damaged records of queues in ``log``, and reports each once."""

    def __init__(self, commit_log: CommitLog, directory: Path) -> None:
        self._log = commit_log
        self._directory = directory
        self._reported: OrderedDict[int, None] = OrderedDict()

    def find(self, queue: ConsumeQueue, offset: int, units: bytes) -> list[int]:
        """Which of the units from ``offset`` on are those of damaged records: their numbers. Missing ones are not."""
        places = [(position, size) for position, size, _ in UNIT.iter_unpack(units)]
        found = [number for number, place in enumerate(places) if not self._is_intact(*place)]
        self._report(queue, [(offset + number, places[number][0]) for number in found])
        return found

    def gather(self, places: tuple[Positions, Positions], units: NDArray[np.void]) -> bytes | None:
        """The records of these units, which lie at ``places``; None where one of them is damaged."""
        try:
            body = self._log.gather(*places)
        except (FileNotFoundError, IndexError, ValueError):
            # an entry names a place that is not there
            return None
        return body if are_intact(body, units) else None

    def read_singly(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: bytes,
        count: int,
        max_bytes: int,
        codes: Collection[int] | None = None,
    ) -> tuple[bytes, int, int]:
        """What :func:`select` chooses of the units from ``offset`` on, as if those of damaged records were missing: the
        records, how many they are, and how many units were looked at."""
        kept: list[bytes] = []
        damaged: list[tuple[int, int]] = []
        seen = total = 0
        for position, size, code in UNIT.iter_unpack(units):
            if codes is None or code in codes:
                if size == MISSING_SIZE or not self._is_intact(position, size):
                    if codes is None:
                        break
                    if size != MISSING_SIZE:
                        damaged.append((offset + seen, position))
                elif len(kept) == count or (kept and total + size > max_bytes):
                    break
                else:
                    kept.append(self._log.read(position, position + size))
                    total += size
            seen += 1
        self._report(queue, damaged)
        return b"".join(kept), len(kept), seen

    def _is_intact(self, position: int, size: int) -> bool:
        return size == MISSING_SIZE or is_intact(self._log, position, size)

    def _report(self, queue: ConsumeQueue, found: list[tuple[int, int]]) -> None:
        new = [place for place in found if place[1] not in self._reported]
        for offset, position in new[:_LINES]:
            log.warning(
                "%s: the message at offset %d of queue %d of %s is passed over: its record at %d of the log is damaged",
                self._directory,
                offset,
                queue.queue_id,
                queue.topic,
                position,
            )
        if len(new) > _LINES:
            log.warning(
                "%s: and %d more of queue %d of %s up to offset %d",
                self._directory,
                len(new) - _LINES,
                queue.queue_id,
                queue.topic,
                new[-1][0],
            )
        for _, position in new:
            self._reported[position] = None
        while len(self._reported) > _REPORTED:
            self._reported.popitem(last=False)
