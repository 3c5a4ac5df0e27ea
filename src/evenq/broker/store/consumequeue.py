"""The consume queue of one queue of a topic: where in the commit log its messages are, in order.

Each message has a unit of 20 bytes: its commit log offset (8), its size there (4), and the hash of its tag (8), by
which a broker filters without looking at the message. The queue offset of a message is the place of its unit.

Units come when their messages are in the commit log. They are kept in memory until a good number of them is written
together: after a kill they are made again from the commit log (see :mod:`evenq.broker.store.recovery`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from evenq.broker.store.files import OS_FILES, Files
from evenq.broker.store.segments import Segments

__all__ = ["FILE_UNITS", "UNIT", "ConsumeQueue", "pack_units"]

UNIT = struct.Struct(">qiq")

# units in a file, as the Java broker has it by default
FILE_UNITS = 300_000

# what the Java broker writes for offsets that a new file has room for and that never were there
_BLANK = (0, 0x7FFFFFFF, 0)

# What may wait in memory before it is written.
_WRITE_AT = 32 * 1024


@lru_cache(256)
def _several(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def pack_units(log_offsets: Sequence[int], sizes: Sequence[int], tags_codes: Sequence[int] | None = None) -> bytes:
    """The units of some messages; without hashes of tags, none has a tag.

    >>> pack_units([100, 120], [20, 30]) == UNIT.pack(100, 20, 0) + UNIT.pack(120, 30, 0)
    True
    """
    fields = [0] * (3 * len(sizes))
    fields[::3], fields[1::3] = log_offsets, sizes
    if tags_codes is not None:
        fields[2::3] = tags_codes
    return _several(len(sizes)).pack(*fields)


class ConsumeQueue:
    """The units of one queue. ``min`` and ``max`` are queue offsets: of the first message that is kept, and behind the
    last one. ``next`` is the offset for the next message, behind those that the store has staged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     queue = ConsumeQueue(Path(root), "orders", 0)
    ...     queue.append(4096, 120, 0)
    ...     queue.append(4216, 80, 0)
    ...     queue.max, list(UNIT.iter_unpack(queue.units(1, 32)))
    (2, [(4216, 80, 0)])
    """

    __slots__ = (
        "_file_units",
        "_pending",
        "_segments",
        "_synced",
        "_written",
        "is_deleted",
        "max",
        "min",
        "next",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        file_units: int = FILE_UNITS,
        files: Files = OS_FILES,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._file_units = file_units
        self._segments = Segments(directory, file_units * UNIT.size, files)
        self._pending = bytearray()
        self.min = self._segments.start // UNIT.size
        # in queue offsets: up to here the units are in the file, from here on in memory
        self._written = self._segments.end // UNIT.size
        self.max = self._written
        # filled units stand before empty ones, whose size is 0
        self.max = self._written = bisect_left(range(self.max), 1, lo=self.min, key=lambda at: self.unit(at)[1] <= 0)
        self.next = self.max
        # up to here the units are on the disk, as far as this process knows
        self._synced = self.min
        self.is_deleted = False

    def append(self, log_offset: int, size: int, tags_code: int) -> None:
        """Add a unit at ``max``, while nothing is staged."""
        self.extend(UNIT.pack(log_offset, size, tags_code))
        self.next = self.max

    def extend(self, units: bytes) -> bool:
        """Add units, in their form in the file, of messages that were staged and are in the log now. Whether so many
        are in memory that they should be written."""
        self._pending += units
        self.max += len(units) // UNIT.size
        return len(self._pending) >= _WRITE_AT

    @property
    def unwritten_bytes(self) -> int:
        return len(self._pending)

    def begin_at(self, offset: int) -> None:
        """Start over at ``offset``: what was before is no longer in the commit log."""
        self.delete()
        # The file begins at a round number: what lies between has units that point to nothing.
        self._written = self._synced = self.max = offset // self._file_units * self._file_units
        for _ in range(offset - self.max):
            self.append(*_BLANK)
        self.min = offset

    def units(self, offset: int, count: int) -> bytes:
        """The units from ``offset`` on, at most ``count``, as they are stored. ``offset`` must be kept."""
        end = min(offset + count, self.max)
        if offset >= self._written:
            return bytes(self._pending[(offset - self._written) * UNIT.size : (end - self._written) * UNIT.size])
        size = UNIT.size
        if end <= self._written:
            return self._segments.read(offset * size, (end - offset) * size)
        stored = self._segments.read(offset * size, (self._written - offset) * size)
        return stored + self._pending[: (end - self._written) * size]

    def unit(self, offset: int) -> tuple[int, int, int]:
        """Commit log offset, size and tag hash of the message at ``offset``."""
        log_offset, size, code = UNIT.unpack(self.units(offset, 1))
        return log_offset, size, code

    @property
    def log_end(self) -> int:
        """The log offset behind the last message; 0 for an empty queue."""
        if self.max == self.min:
            return 0
        log_offset, size, _ = self.unit(self.max - 1)
        return 0 if size == _BLANK[1] else log_offset + size

    def first_at_or_after(self, log_offset: int) -> int:
        """The queue offset of the first message at ``log_offset`` or behind it; ``max`` if there is none."""
        return bisect_left(range(self.max), log_offset, lo=self.min, key=lambda offset: self.unit(offset)[0])

    def write_out(self) -> None:
        """Hand what waits in memory to the file."""
        if self._pending:
            # a copy: if it cannot be written, more will be added
            self._segments.write(self._written * UNIT.size, bytes(self._pending))
            self._pending.clear()
            self._written = self.max

    def cut(self, log_offset: int) -> None:
        """Forget the messages at ``log_offset`` and behind it."""
        self.max = self.next = self.first_at_or_after(log_offset)
        self._synced = min(self._synced, self.max)
        if self.max >= self._written:
            del self._pending[(self.max - self._written) * UNIT.size :]
        else:
            self._pending.clear()
            self._written = self.max
            self._segments.cut(self.max * UNIT.size)

    def trim(self, log_offset: int) -> None:
        """Let ``min`` be the first message that is still in a commit log beginning at ``log_offset``; files that only
        hold units in front of it go."""
        self.min = self.first_at_or_after(log_offset)
        self._segments.drop_before(self.min * UNIT.size)

    def sync(self) -> None:
        """Return when all units that are in the files by now are on the disk. May run in another thread."""
        target = self._written
        for segment in list(self._segments.files):
            if segment.end > self._synced * UNIT.size and segment.start < target * UNIT.size:
                segment.sync()
        self._synced = target

    def close(self) -> None:
        self.write_out()
        self.release()

    def release(self) -> None:
        """Close the files as they are."""
        self._segments.close()

    def delete(self) -> None:
        self._pending.clear()
        self._segments.cut(0)
        self.min = self.max = self.next = self._written = self._synced = 0

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min}..{self.max})"
