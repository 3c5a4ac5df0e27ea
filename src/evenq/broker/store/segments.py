"""A run of files of one fixed size that together are one long array of bytes.

RocketMQ keeps its commit log and its consume queues this way: each file is named by the position of its first byte
in twenty digits, has its full size from the start (sparse: it takes what is written) and is filled from the front.

Writes go through the file, not through a map: a full disk is then an ``OSError`` for one sender, not a ``SIGBUS``
for the process, and what was written survives the process whatever kills it.
"""

from __future__ import annotations

import errno
import mmap
from itertools import pairwise
from pathlib import Path

from evenq.broker.store.files import OS_FILES, Files
from evenq.errors import StateError

__all__ = ["Segment", "Segments"]

_CHUNK = 1024 * 1024


class Segment:
    """One file of the run, open for reading and writing at any position."""

    __slots__ = ("_fd", "_files", "_map", "_view", "end", "path", "size", "start")

    def __init__(self, path: Path, size: int, files: Files = OS_FILES) -> None:
        self.path = path
        self.start = int(path.name)
        self.size = size
        self.end = self.start + size
        self._files = files
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._fd = files.open(path, create=True)
        try:
            if files.size(self._fd) != size:
                files.truncate(self._fd, size)
        except OSError:
            files.close(self._fd)
            raise

    def write(self, at: int, data: memoryview) -> None:
        self._files.write(self._fd, data, at - self.start)

    def read(self, at: int, size: int) -> bytes:
        return self._files.pread(self._fd, size, at - self.start)

    @property
    def map(self) -> mmap.mmap:
        """The whole file for reading. It costs one more open file."""
        if self._map is None:
            self._map = self._files.map(self._fd, self.size)
        return self._map

    @property
    def view(self) -> memoryview:
        """The same, for who takes many small slices: they are not copied."""
        if self._view is None:
            self._view = memoryview(self.map)
        return self._view

    def unload(self) -> None:
        """Give back the memory of the pages that were read; they stay in the system's cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def zero_from(self, at: int) -> None:
        """Make everything from ``at`` on a hole again."""
        self._files.truncate(self._fd, at - self.start)
        self._files.truncate(self._fd, self.size)

    def data_end(self, at: int) -> int:
        """The position behind the last byte that is not zero, of those from ``at`` on; ``at`` if all are zeros."""
        end = at
        while (at := self.start + self._files.data_from(self._fd, at - self.start)) < self.end:
            data = self.read(at, min(_CHUNK, self.end - at))
            if kept := len(data.rstrip(b"\0")):
                end = at + kept
            at += len(data)
        return end

    def sync(self) -> None:
        """Return when everything written is on the disk. May run in another thread than the writes."""
        self._files.sync(self._fd, self.path)

    def close(self) -> None:
        if self._view is not None:
            self._view.release()
        if self._map is not None:
            self._map.close()
        self._files.close(self._fd)


class Segments:
    """The files of one directory, in order, each ``size`` bytes long.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     run = Segments(Path(root), 16)
    ...     run.write(0, b"0123456789abcdefXYZ")
    ...     [file.path.name[-2:] for file in run.files], run.read(14, 4)
    (['00', '16'], b'efXY')
    """

    __slots__ = ("_by_start", "_system", "directory", "files", "size")

    def __init__(self, directory: Path, size: int, system: Files = OS_FILES) -> None:
        self.directory = directory
        self._system = system
        self.size = size
        names = sorted(path for path in directory.glob("*") if path.name.isdigit()) if directory.is_dir() else []
        for path in names:
            found = path.stat().st_size
            # one may be shorter that was new when the machine stopped
            if found > size or int(path.name) % size:
                raise StateError(
                    f"{path} has {found} bytes and must have {size}: the data directory was written with another file "
                    f"size; start with that size, or with another directory"
                )
        self.files = [Segment(path, size, system) for path in names]
        self._by_start = {segment.start: segment for segment in self.files}

    @property
    def start(self) -> int:
        """The first position that is still kept."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """The position after the last file; how far it is filled is for the owner to know."""
        return self.files[-1].end if self.files else 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """What is missing between the files: where each gap begins and ends."""
        return [(one.end, other.start) for one, other in pairwise(self.files) if one.end != other.start]

    def holds(self, position: int) -> bool:
        """Whether there is a file for ``position``."""
        return position // self.size * self.size in self._by_start

    def at(self, position: int) -> Segment:
        """The file that holds ``position``. One that is missing is a FileNotFoundError."""
        start = position // self.size * self.size
        try:
            return self._by_start[start]
        except KeyError:
            path = self.directory / f"{start:020d}"
            raise FileNotFoundError(errno.ENOENT, "the file is missing", str(path)) from None

    def extend(self, position: int) -> Segment:
        """The file that holds ``position``; a new one where the run ends exactly there."""
        if self.files and position < self.end:
            return self.at(position)
        self._system.make_directories(self.directory)
        start = position // self.size * self.size
        segment = Segment(self.directory / f"{start:020d}", self.size, self._system)
        self.files.append(segment)
        self._by_start[start] = segment
        return segment

    def write(self, at: int, data: bytes | bytearray) -> None:
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                segment = self.extend(at + done)
                piece = view[done : done + segment.end - at - done]
                segment.write(at + done, piece)
                done += len(piece)

    def read(self, at: int, size: int) -> bytes:
        segment = self.at(at)
        room = segment.end - at
        if size <= room:
            return segment.read(at, size)
        return segment.read(at, room) + self.read(segment.end, size - room)

    def unload(self) -> None:
        """Give back the memory of what was read."""
        for segment in self.files:
            segment.unload()

    def cut(self, position: int) -> None:
        """Forget everything from ``position`` on: later files are removed, the rest of this one becomes a hole."""
        while self.files and self.files[-1].start >= position:
            self.drop(self.files[-1])
        if self.holds(position):
            self.at(position).zero_from(position)

    def cut_on_disk(self, position: int) -> None:
        """Forget everything from ``position`` on, and return when it is gone from the disk, too."""
        self.cut(position)
        if self.files:
            self.files[-1].sync()
        else:
            self._system.sync_names(self.directory / "any")

    def drop_before(self, position: int) -> None:
        """Forget the files that end at ``position`` or earlier, but not the last: it tells where to go on."""
        while len(self.files) > 1 and self.files[0].end <= position:
            self.drop(self.files[0])

    def drop(self, segment: Segment) -> None:
        self.files.remove(segment)
        del self._by_start[segment.start]
        segment.close()
        self._system.unlink(segment.path)

    def remove_directory(self) -> None:
        """Remove the directory, and the one above it, where nothing is left in them."""
        for directory in (self.directory, self.directory.parent):
            if not directory.is_dir() or any(directory.iterdir()):
                return
            self._system.rmdir(directory)

    def close(self) -> None:
        for segment in self.files:
            segment.close()
        self.files = []
        self._by_start = {}
