"""The commit log: every message of a broker, in the order of arrival, one record behind the other.

A record never crosses the end of a file: where it does not fit, a blank marker fills the rest and the record opens
the next file. So records that follow each other directly in the log can be read as one piece.

The log gives out places before anything is written (:attr:`CommitLog.next`): the store stages records in memory and
writes those of a turn together (:mod:`evenq.broker.store.store`). Nothing can be read that is not written.

It remembers the sizes of the last records, so that the index need not look for where they begin.
"""

from __future__ import annotations

import mmap
import struct
import threading
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.files import OS_FILES, Files, Segments
from evenq.protocol.windows import windows

__all__ = ["BLANK_MAGIC", "FILE_SIZE", "CommitLog", "RecentSizes"]

FILE_SIZE = 1024 * 1024 * 1024

BLANK_MAGIC = 0xCBD43194
_BLANK = struct.Struct(">II")

# Reads fill the map of a file with pages: after so many bytes they are given back.
_UNLOAD_AFTER = 32 * 1024 * 1024


class CommitLog:
    """Records by log offset. ``start`` is the first one kept, ``end`` the end of what is written, and ``next`` where
    the next record goes, behind those that are staged."""

    __slots__ = ("_read", "_segments", "_synced", "_syncing", "end", "file_size", "next", "recent")

    def __init__(self, directory: Path, file_size: int = FILE_SIZE, files: Files = OS_FILES) -> None:
        self.file_size = file_size
        self._segments = Segments(directory, file_size, files)
        self._read = 0
        self._syncing = threading.Lock()
        self.recent = RecentSizes()
        # Until recovery has found the true end by `cut`, nothing may be written.
        self.end = self.next = self._synced = self._segments.end

    @property
    def start(self) -> int:
        return self._segments.start

    @property
    def filled(self) -> int:
        """Where the files end: nothing can be found behind it."""
        return self._segments.end

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Missing files between others: the offsets where each gap begins and ends."""
        return self._segments.gaps

    def holds(self, position: int) -> bool:
        """Whether there is a file for ``position``."""
        return self._segments.holds(position)

    def file_end(self, position: int) -> int:
        """The position behind the file that ``position`` is in, whether that file is there or not."""
        return (position // self.file_size + 1) * self.file_size

    def file(self, position: int) -> tuple[mmap.mmap, int]:
        """The content of the file that holds ``position``, and the position of its first byte."""
        segment = self._segments.at(position)
        return segment.map, segment.start

    def place(self, position: int) -> tuple[Path, int]:
        """The file that holds ``position``, and where in it that is: for whoever reads it by himself."""
        segment = self._segments.at(position)
        return segment.path, position - segment.start

    @property
    def file_starts(self) -> Sequence[int]:
        return [segment.start for segment in self._segments.files]

    def fits(self, size: int) -> bool:
        """Whether a record of ``size`` bytes, and a marker behind it, still fits into the file at :attr:`next`."""
        return size + _BLANK.size <= self.file_size - self.next % self.file_size

    @property
    def largest(self) -> int:
        """The size that records which stand together may have."""
        return self.file_size - _BLANK.size

    def blank(self) -> bytes:
        """The marker that fills the rest of the file, to be written at :attr:`next`."""
        return self.marker(self.room)

    @staticmethod
    def marker(size: int) -> bytes:
        """What takes the place of the last ``size`` bytes of a file."""
        return _BLANK.pack(size, BLANK_MAGIC)

    @property
    def room(self) -> int:
        """How many bytes of the file are behind :attr:`next`."""
        return self.file_size - self.next % self.file_size

    def write(self, pieces: Sequence[tuple[int, bytes | bytearray, *tuple[Any, ...]]]) -> None:
        """Write pieces, which begin with their offset and their bytes, in order from :attr:`end` on. They survive this
        process then.

        If that fails, some of the bytes may be in the files: call :meth:`discard`.
        """
        data = pieces[0][1] if len(pieces) == 1 else b"".join([piece[1] for piece in pieces])
        if len(data) == self.next - self.end:
            self._segments.write(self.end, data)
        else:
            # a marker fills the rest of a file: what follows begins the next one
            for piece in pieces:
                self._segments.write(piece[0], piece[1])
        self.end = self.next

    def discard(self) -> None:
        """Remove what a failed write left behind :attr:`end`, so that no start can ever take it for messages, also not
        one after a power failure."""
        self.next = self.end
        if self.data_end(self.end) > self.end:
            self._segments.cut_on_disk(self.end)
        else:
            self._segments.cut(self.end)

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``, which must lie in one file."""
        segment = self._segments.at(start)
        self._note_read(end - start)
        return segment.map[start - segment.start : end - segment.start]

    def gather(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bytes:
        """The bytes of several pieces in the order of the log, each within one file."""
        last = int(ends[-1])
        segment = self._segments.at(int(starts[0]))
        if last > segment.end:
            return b"".join(map(self.read, starts.tolist(), ends.tolist()))
        starts, ends = starts - segment.start, ends - segment.start
        sizes = ends - starts
        size = int(sizes[0])
        if len(sizes) > 1 and (sizes == size).all():
            data = windows(segment.view, size)[starts].tobytes()
        else:
            view = segment.view
            data = b"".join([view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
        self._note_read(len(data))
        return data

    def _note_read(self, size: int) -> None:
        self._read += size
        if self._read > _UNLOAD_AFTER:
            self.unload()

    def unload(self) -> None:
        """Give back the memory of what was read."""
        self._read = 0
        self._segments.unload()

    def cut(self, position: int, synced: int | None = None) -> None:
        """Make ``position`` the end; what is behind it is gone. What is before ``synced`` is known to be on the disk;
        without it, what is before the last file."""
        self.recent.forget()
        # What was cut must not come back: records may lie there that would pass for whole behind a later damage.
        self._segments.cut_on_disk(position)
        self.end = self.next = position
        # whoever wrote the last files may have been killed before they were on the disk
        known = position if synced is None else min(synced, position)
        self._synced = known - known % self.file_size
        if self._segments.end < position:
            # files before it are missing: without this one nothing would tell where the log goes on
            self._segments.extend(position)

    def resume_behind(self, position: int) -> tuple[int, int] | None:
        """Let the log go on in the first file behind ``position``, if no file reaches up to there. For starts.

        Gives where the missing part begins, and where the log goes on; None if nothing is missing.
        """
        begin = self.filled
        if position <= begin:
            return None
        self._segments.extend(position + -position % self.file_size)
        self.end = self.next = self._synced = self.filled
        return begin, self.file_starts[-1]

    def overwrite(self, position: int, data: bytes) -> None:
        """Replace bytes within a file, on the disk too. For starts."""
        self._segments.write(position, data)
        self._segments.at(position).sync()

    def data_end(self, position: int) -> int:
        """Behind the last byte that is not zero, of those from ``position`` on; ``position`` if all are zeros."""
        for segment in reversed(self._segments.files):
            if segment.end > position:
                begin = max(segment.start, position)
                end = segment.data_end(begin)
                if end > begin:
                    return end
        return position

    def drop_before(self, position: int) -> None:
        """Remove the files in front of the one that begins at ``position``, as far as nobody waits for their sync."""
        self._segments.drop_before(min(position, self._synced))

    def sync(self) -> int:
        """Return when all that was written by now is on the disk: up to the offset given. For other threads."""
        with self._syncing:
            target = self.end
            self._segments.sync(self._synced, target)
            self._synced = target
            return target

    def close(self) -> None:
        self._segments.close()


# What is kept together: so many records, or so many bytes of them.
_RUN = 4096
_RUN_BYTES = 512 * 1024
# Of more runs than these it is cheaper to read the log than to keep them.
_MOST = 512


class _Run:
    """Records one behind the other."""

    __slots__ = ("begin", "end", "sizes")

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.sizes = array("i")

    @property
    def is_full(self) -> bool:
        return len(self.sizes) >= _RUN or self.end - self.begin >= _RUN_BYTES


class RecentSizes:
    """Sizes of records by where they begin in the log.

    >>> recent = RecentSizes()
    >>> recent.add(100, 50, [20, 30])
    >>> recent.add(150, 40, [40])
    >>> recent.begin, recent.take(100), recent.take(100)
    (100, array('i', [20, 30, 40]), None)
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque(maxlen=_MOST)

    def add(self, at: int, total: int, sizes: Iterable[int]) -> None:
        """Note records at ``at`` which have these sizes, and ``total`` bytes together."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.end != at or run.is_full:
            run = _Run(at)
            self._runs.append(run)
        run.sizes.extend(sizes)
        run.end += total

    @property
    def begin(self) -> int | None:
        """Where the first record is whose size is known."""
        return self._runs[0].begin if self._runs else None

    def take(self, position: int, most: int = 0) -> array[int] | None:
        """The sizes of the records at ``position`` and behind it: a run of them, and more while they have at most
        ``most`` bytes. What lies before is forgotten."""
        runs = self._runs
        while runs and runs[0].begin < position:
            runs.popleft()
        if not runs or runs[0].begin > position:
            return None
        first = runs.popleft()
        end = first.end
        while runs and runs[0].begin == end and runs[0].end - position <= most:
            end = runs[0].end
            first.sizes.extend(runs.popleft().sizes)
        return first.sizes

    def forget(self) -> None:
        """Forget all: something else will be written there."""
        self._runs.clear()
