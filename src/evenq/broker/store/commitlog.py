"""The commit log: every message of a broker, in the order of arrival, one record behind the other.

A record never crosses the end of a file: where it does not fit, a blank marker fills the rest and the record opens
the next file. So records that follow each other directly in the log can be read as one piece.

Appended records gather in memory and are written together by :meth:`CommitLog.write_out`. The broker calls it before
it answers anybody, so that a sender never holds a receipt for something that a kill could take back.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.recent import RecentSizes
from evenq.broker.store.segments import Segments
from evenq.protocol.windows import windows

__all__ = ["BLANK_MAGIC", "FILE_SIZE", "CommitLog"]

FILE_SIZE = 1024 * 1024 * 1024

BLANK_MAGIC = 0xCBD43194
_BLANK = struct.Struct(">II")

# Reads fill the map of a file with pages: after so many bytes they are given back.
_UNLOAD_AFTER = 32 * 1024 * 1024


class CommitLog:
    """Records by log offset. ``start`` is the first one kept, ``end`` where the next one goes."""

    __slots__ = ("_pending", "_read", "_segments", "_synced", "_written", "end", "file_size", "recent")

    def __init__(self, directory: Path, file_size: int = FILE_SIZE) -> None:
        self.file_size = file_size
        self._segments = Segments(directory, file_size)
        self._pending: list[bytes | bytearray] = []
        self._read = 0
        self.recent = RecentSizes()
        # Until recovery has found the true end by `cut`, nothing may be appended.
        self.end = self._written = self._synced = self._segments.end

    @property
    def start(self) -> int:
        return self._segments.start

    @property
    def written(self) -> int:
        """Up to where the log is with the system, and not only in memory."""
        return self._written

    @property
    def filled(self) -> int:
        """Where the files end: nothing can be found behind it."""
        return self._segments.end

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
        """Whether a record of ``size`` bytes, and a marker behind it, still fits into the file at :attr:`end`."""
        return size + _BLANK.size <= self.file_size - self.end % self.file_size

    @property
    def largest(self) -> int:
        """The size that records which stand together may have."""
        return self.file_size - _BLANK.size

    def roll(self) -> None:
        """Fill the rest of the file with a blank marker and go on in the next one."""
        room = self.file_size - self.end % self.file_size
        self._pending.append(_BLANK.pack(room, BLANK_MAGIC))
        self.write_out()
        self.end = self._written = self.end + room

    def append(self, records: bytes | bytearray, sizes: Iterable[int]) -> None:
        """Add records of these sizes, with no gap between, at :attr:`end`; they must fit."""
        self._pending.append(records)
        self.recent.add(self.end, len(records), sizes)
        self.end += len(records)

    def write_out(self) -> None:
        """Hand what waits in memory to the file: from then on it survives this process."""
        if self._pending:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._segments.write(self._written, data)
            self._pending.clear()
            self._written = self.end

    def take_back(self) -> int:
        """Forget what waits in memory: the file would not take it. The offset at which the log ends now."""
        self._pending.clear()
        self.recent.forget()
        self.end = self._written
        return self.end

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``, which must lie in one file."""
        if end > self._written:
            self.write_out()
        segment = self._segments.at(start)
        self._note_read(end - start)
        return segment.map[start - segment.start : end - segment.start]

    def gather(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bytes:
        """The bytes of several pieces in the order of the log, each within one file."""
        last = int(ends[-1])
        if last > self._written:
            self.write_out()
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

    def cut(self, position: int) -> None:
        """Make ``position`` the end; what is behind it is gone."""
        self._pending.clear()
        self.recent.forget()
        self._segments.cut(position)
        self.end = self._written = position
        # whoever wrote the last file may have been killed before it was on the disk
        self._synced = position - position % self.file_size

    def drop_before(self, position: int) -> None:
        """Remove the files in front of the one that begins at ``position``, as far as nobody waits for their sync."""
        self._segments.drop_before(min(position, self._synced))

    def sync(self) -> int:
        """Return when all that was written by now is on the disk: up to the offset given. For another thread."""
        target = self._written
        for segment in list(self._segments.files):
            if segment.end > self._synced and segment.start < target:
                segment.sync()
        self._synced = target
        return target

    def close(self) -> None:
        self.write_out()
        self._segments.close()
