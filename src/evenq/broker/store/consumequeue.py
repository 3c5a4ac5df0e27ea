"""The consume queue of one queue of a topic: where in the commit log its messages are, in order.

Each message has a unit of 20 bytes: its commit log offset (8), its size there (4), and the hash of its tag (8), by
which a broker filters without looking at the message. The queue offset of a message is the place of its unit.

Units come when their messages are in the commit log. They are kept in memory until a good number of them is written
together: after a kill they are made again from the commit log (see :mod:`evenq.broker.store.recovery`).

An offset whose message is gone for good keeps a unit of its own, so that all others keep their offsets: the place of
the message before it (or after it, if there is none before), with a code that no tag has. Readers pass over such units,
and over those of messages in files of the log that are missing. The Java broker gives the other message once more in
their place. Where a unit has no message at all it gives nothing, nor most of what follows: so units of position 0 and
the largest size, which it writes where a queue begins in the middle of a file, stand where there is no other message.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.files import OS_FILES, Files, Segments

__all__ = ["FILE_UNITS", "MISSING_SIZE", "UNIT", "UNITS", "ConsumeQueue", "pack_units"]

UNIT = struct.Struct(">qiq")

# units in a file, as the Java broker has it by default
FILE_UNITS = 300_000

# the size that stands in the unit of a missing message, and the code by which it is known in the file
MISSING_SIZE = 0x7FFFFFFF
_MISSING_CODE = 0x45564E51_80000000
_MISSING_MARK = _MISSING_CODE.to_bytes(8)
# what callers are told of it: no message is at that place of the log
_NOWHERE = (-1, 0, 0)

# the same for arrays
UNITS = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])

# What may wait in memory before it is written.
_WRITE_AT = 32 * 1024
# How many units are looked at together.
_TOGETHER = 4096


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


def _mark_missing(fields: NDArray[np.void]) -> None:
    fields["size"][fields["code"] == _MISSING_CODE] = MISSING_SIZE


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
        "_gaps",
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
        gaps: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._file_units = file_units
        # where messages are missing in the log
        self._gaps = gaps
        self._segments = Segments(directory, file_units * UNIT.size, files)
        self._pending = bytearray()
        self.min = self._segments.start // UNIT.size
        # in queue offsets: up to here the units are in the file, from here on in memory
        self._written = self._segments.end // UNIT.size
        self.max = self._written
        # filled units stand before empty ones, whose size is 0
        self.max = self._written = bisect_left(range(self.max), 1, lo=self.min, key=self._is_empty)
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

    def skip_to(self, offset: int, following: tuple[int, int] | None = None) -> None:
        """Let the next message get ``offset``: those that had the offsets before it are gone. For starts.

        ``following`` is the place of the next message in the log, and its size.
        """
        if not self._segments.files and not self._pending:
            # nothing is known of the queue: its first file begins at a round number
            self._written = self._synced = self.max = offset // self._file_units * self._file_units
            self.min = offset
        place, size = self._last_present() or following or (0, MISSING_SIZE)
        missing = UNIT.pack(place, size, _MISSING_CODE)
        while self.max < offset:
            self._pending += missing * min(offset - self.max, _TOGETHER)
            self.max = self._written + len(self._pending) // UNIT.size
            if len(self._pending) >= _WRITE_AT:
                self.write_out()
        self.next = self.max

    def units(self, offset: int, count: int) -> bytes:
        """The units from ``offset`` on, at most ``count``, as they are stored. ``offset`` must be kept.

        Messages in missing files of the log are missing, too.
        """
        units = self._stored(offset, min(offset + count, self.max))
        return units if not self._gaps and _MISSING_MARK not in units else self._with_missing(units)

    def _with_missing(self, units: bytes) -> bytes:
        """Units in which those of missing messages have their size."""
        fields = np.frombuffer(units, UNITS).copy()
        _mark_missing(fields)
        for begin, end in self._gaps:
            fields["size"][(fields["position"] >= begin) & (fields["position"] < end)] = MISSING_SIZE
        return fields.tobytes()

    def _stored(self, offset: int, end: int) -> bytes:
        if offset >= self._written:
            return bytes(self._pending[(offset - self._written) * UNIT.size : (end - self._written) * UNIT.size])
        size = UNIT.size
        if end <= self._written:
            return self._segments.read(offset * size, (end - offset) * size)
        stored = self._segments.read(offset * size, (self._written - offset) * size)
        return stored + self._pending[: (end - self._written) * size]

    def unit(self, offset: int) -> tuple[int, int, int]:
        """Commit log offset, size and tag hash of the message at ``offset``; a missing one is at -1."""
        log_offset, size, code = UNIT.unpack(self.units(offset, 1))
        return _NOWHERE if size == MISSING_SIZE else (log_offset, size, code)

    def _is_empty(self, offset: int) -> bool:
        try:
            return bool(UNIT.unpack(self._stored(offset, offset + 1))[1] == 0)
        except FileNotFoundError:
            return True

    @property
    def log_end(self) -> int:
        """The log offset behind the last message; 0 for an empty queue."""
        return sum(self._last_present() or (0, 0))

    def _last_present(self) -> tuple[int, int] | None:
        """Commit log offset and size of the last message that is not missing."""
        end = self.max
        while end > self.min:
            begin = max(end - _TOGETHER, self.min)
            present = np.flatnonzero(self._sizes(begin, end) != MISSING_SIZE)
            if len(present):
                return self.unit(begin + int(present[-1]))[:2]
            end = begin
        return None

    @property
    def log_start(self) -> int | None:
        """The log offset of the first message in the first file; None where there is none."""
        end = min(self.max, (self.min // self._file_units + 1) * self._file_units)
        first = self.first_present(self.min, end)
        return self.unit(first)[0] if first < end else None

    @property
    def has_gaps(self) -> bool:
        """Whether files of the queue are missing between others."""
        return bool(self._segments.gaps)

    def _sizes(self, begin: int, end: int) -> NDArray[np.int32]:
        return np.frombuffer(self.units(begin, end - begin), UNITS)["size"]

    def first_present(self, offset: int, end: int) -> int:
        """The first offset from ``offset`` on whose message is not missing; ``end`` if all of them are."""
        while offset < end:
            behind = min(offset + _TOGETHER, end)
            present = np.flatnonzero(self._sizes(offset, behind) != MISSING_SIZE)
            if len(present):
                return offset + int(present[0])
            offset = behind
        return end

    def first(self, is_behind: Callable[[int], bool]) -> int:
        """The first offset for which ``is_behind`` holds, as it does for all later ones; ``max`` if there is none. It
        is not asked about missing messages."""
        low, high, found = self.min, self.max, self.max
        while low < high:
            middle = (low + high) // 2
            present = self.first_present(middle, high)
            if present == high:
                high = middle
            elif is_behind(present):
                found, high = present, middle
            else:
                low = present + 1
        return found

    def first_at_or_after(self, log_offset: int) -> int:
        """The queue offset of the first message at ``log_offset`` or behind it; ``max`` if there is none."""
        return self.first(lambda offset: self.unit(offset)[0] >= log_offset)

    def write_out(self) -> None:
        """Hand what waits in memory to the file."""
        if self._pending:
            # a copy: if it cannot be written, more will be added
            self._segments.write(self._written * UNIT.size, bytes(self._pending))
            self._pending.clear()
            self._written = self.max

    def cut(self, log_offset: int) -> None:
        """Forget the messages at ``log_offset`` and behind it, and all behind a unit that cannot be right. For starts.

        When a machine stops, any page of a file may be lost that was not on the disk: units behind the first that is
        empty, or not behind the one before it in the log, mean nothing.
        """
        self.write_out()
        self.max = self.next = self._written = self._whole_up_to(log_offset)
        self._synced = min(self._synced, self.max)
        self._segments.cut(self.max * UNIT.size)

    def _whole_up_to(self, log_offset: int) -> int:
        offset, log_end = self._known_up_to(log_offset), -1
        # behind the last message, missing ones left out
        known = present_end = offset
        while offset < self._segments.end // UNIT.size:
            try:
                units = self._segments.read(offset * UNIT.size, self._block(offset) * UNIT.size)
            except FileNotFoundError:
                return offset
            fields = np.frombuffer(units, UNITS).copy()
            _mark_missing(fields)
            sizes, positions = fields["size"].astype(np.int64), fields["position"].astype(np.int64)
            missing = sizes == MISSING_SIZE
            # the place behind each message; missing ones have that of the message before them
            ends = np.where(missing, -1, positions + sizes)
            reached = np.maximum.accumulate(np.append(log_end, ends))
            right = (sizes > 0) & (positions >= reached[:-1]) & (positions < log_offset)
            wrong = np.flatnonzero(~(right | missing))
            present = np.flatnonzero(right[: wrong[0]] if len(wrong) else right)
            if len(present):
                present_end = offset + int(present[-1]) + 1
            if len(wrong) and present_end == known:
                # no message is left that could tell
                return known
            if len(wrong):
                # Missing ones before a message that is forgotten come again with it, if it still says so.
                return present_end if sizes[wrong[0]] > 0 else offset + int(wrong[0])
            offset, log_end = offset + len(fields), int(reached[-1])
        return offset

    def places_from(self, log_offset: int) -> NDArray[np.int64]:
        """The places in the log at ``log_offset`` and behind it that units name, whether these are right or not."""
        offset, found = self._known_up_to(log_offset), [np.empty(0, np.int64)]
        while offset < self._segments.end // UNIT.size:
            count = self._block(offset)
            if self._segments.holds(offset * UNIT.size):
                fields = np.frombuffer(self._segments.read(offset * UNIT.size, count * UNIT.size), UNITS).copy()
                _mark_missing(fields)
                if not fields["size"].any():
                    break
                places = fields["position"][(fields["size"] > 0) & (fields["size"] != MISSING_SIZE)].astype(np.int64)
                found.append(places[places >= log_offset])
            offset += count
        return np.concatenate(found)

    def _block(self, offset: int) -> int:
        """How many units of one file are read together."""
        return min(_TOGETHER, self._file_units - offset % self._file_units)

    def _known_up_to(self, log_offset: int) -> int:
        """Units are written and synced in order. So those before a file whose first one is older are on the disk."""
        for segment in reversed(self._segments.files):
            position, size, _ = UNIT.unpack(segment.read(segment.start, UNIT.size))
            if 0 < size < MISSING_SIZE and position < log_offset and not self._segments.gaps:
                return segment.start // UNIT.size
        return self._segments.start // UNIT.size

    def trim(self, log_offset: int) -> None:
        """Let ``min`` be the first message that is still in a commit log beginning at ``log_offset``; files that only
        hold units in front of it go."""
        self.min = self.first_at_or_after(log_offset)
        self._segments.drop_before(self.min * UNIT.size)

    def sync(self) -> None:
        """Return when all units that are in the files by now are on the disk. May run in another thread."""
        target = self._written
        self._segments.sync(self._synced * UNIT.size, target * UNIT.size)
        self._synced = target

    def close(self) -> None:
        self.write_out()
        self.release()

    def release(self) -> None:
        """Close the files as they are."""
        self._segments.close()

    def delete(self) -> None:
        """Remove the files, and the directories that held nothing else."""
        self._pending.clear()
        self._segments.cut(0)
        self._segments.remove_directory()
        self.min = self.max = self.next = self._written = self._synced = 0

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min}..{self.max})"
