"""Access to files. Everything that the store does with the file system goes through one :class:`Files`.

So tests can let any single operation fail, and can write down all of them to find out what a power failure leaves. Each
of these methods is one operation of the system: `open`, `pread`, `pwrite`, `truncate`, `datasync`, `sync_directory`,
`rename`, `unlink`, `mkdir` and `rmdir`. The others are made of them.

A file is on the disk only if the directory that names it is, and so on up to a directory that was there before.
``Files`` remembers the directories in which something was created, renamed or removed; :meth:`Files.sync` brings those
above a file to the disk with the file itself.

:class:`Segments` is a run of files of one fixed size that together are one long array of bytes. RocketMQ keeps its
commit log and its consume queues this way: each file is named by the position of its first byte
in twenty digits, has its full size from the start (sparse: it takes what is written) and is filled from the front.

Writes go through the file, not through a map: a full disk is then an ``OSError`` for one sender, not a ``SIGBUS``
for the process, and what was written survives the process whatever kills it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from evenq.errors import StateError

__all__ = ["OS_FILES", "DirectoryLock", "Files", "Segment", "Segments", "SyncFailed", "write_beside"]

# Messages and offsets are nobody else's business.
_MODE = 0o600


class SyncFailed(OSError):
    """The disk did not take what was written. The system may have forgotten it: another attempt may seem to succeed."""


class Files:
    """The operations of the system on files. Methods that wait for the disk may run in any thread."""

    def __init__(self) -> None:
        # directories with names that may not be on the disk
        self._unsynced: set[Path] = set()
        self._syncing = threading.Lock()

    # -- one operation of the system each

    def open(self, path: Path, *, create: bool = False, empty: bool = False) -> int:
        """The descriptor of a file, for reading and writing; ``empty`` removes what it held."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_TRUNC if empty else 0)
        if not create:
            return os.open(path, flags)
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
        except FileExistsError:
            return os.open(path, flags)
        self._unsynced.add(path.parent)
        return descriptor

    def pread(self, descriptor: int, size: int, at: int) -> bytes:
        return os.pread(descriptor, size, at)

    def pwrite(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        """Write at least one byte; how many were written."""
        return os.pwrite(descriptor, data, at)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def datasync(self, descriptor: int) -> None:
        """Return when the content of the file is on the disk."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        elif hasattr(fcntl, "F_FULLFSYNC"):
            # macOS: its fsync leaves the data in the cache of the disk
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file of a directory another name there, in one step; what had that name is gone."""
        path.replace(target)
        self._unsynced.add(target.parent)

    def unlink(self, path: Path) -> None:
        path.unlink()
        self._unsynced.add(path.parent)

    def mkdir(self, path: Path) -> None:
        path.mkdir()
        self._unsynced.add(path.parent)

    def rmdir(self, path: Path) -> None:
        """Remove a directory that is empty."""
        path.rmdir()
        self._unsynced.discard(path)
        self._unsynced.add(path.parent)

    # -- made of these

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def data_from(self, descriptor: int, at: int) -> int:
        """The first place from ``at`` on where the file is not a hole; its size if there is none."""
        try:
            return os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: nothing follows; anything else: the file system has no holes
            return self.size(descriptor) if error.errno == errno.ENXIO else at

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """The first ``size`` bytes of the file, for reading. It costs one more open file."""
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)

    def write(self, descriptor: int, data: bytes | memoryview, at: int) -> None:
        """Write all of ``data``. If that fails, some of it may be in the file."""
        size = len(data)
        done = self.pwrite(descriptor, data, at)
        while done < size:
            with memoryview(data) as rest:
                written = self.pwrite(descriptor, rest[done:], at + done)
            if written == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            done += written

    def read(self, path: Path) -> bytes:
        """All of a file."""
        descriptor = self.open(path)
        try:
            return self.pread(descriptor, self.size(descriptor), 0)
        finally:
            self.close(descriptor)

    def make_directories(self, path: Path) -> None:
        """Make a directory and those above it, as far as they are missing."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            try:
                self.mkdir(each)
            except FileExistsError:
                # another thread was faster
                if not each.is_dir():
                    raise

    def sync(self, descriptor: int, path: Path) -> None:
        """Return when the content of an open file is on the disk, and its name."""
        try:
            self.datasync(descriptor)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, str(path)) from error
        self.sync_names(path)

    def doubt_names(self, directory: Path) -> None:
        """Take no name in ``directory`` or below it to be on the disk: a process that was killed may have given it."""
        self._unsynced.update([directory, *(path for path in directory.rglob("*") if path.is_dir())])

    def sync_names(self, path: Path) -> None:
        """Return when the names on the way to ``path`` are on the disk."""
        with self._syncing:
            for directory in path.parents:
                # Removed first: a name that comes while the disk is waited for needs another time.
                if directory in self._unsynced:
                    self._unsynced.discard(directory)
                    try:
                        self.sync_directory(directory)
                    except OSError as error:
                        self._unsynced.add(directory)
                        raise SyncFailed(error.errno, error.strerror, str(directory)) from error


OS_FILES = Files()


def write_beside(path: Path, content: bytes, *, files: Files = OS_FILES, sync: bool = False) -> Path:
    """Write ``content`` to a new file beside ``path``, to take its name afterwards; with ``sync`` it is on the disk
    before that."""
    beside = path.with_name(f"{path.name}.tmp")
    files.make_directories(path.parent)
    descriptor = files.open(beside, create=True, empty=True)
    try:
        files.write(descriptor, content, 0)
        if sync:
            files.datasync(descriptor)
    finally:
        files.close(descriptor)
    return beside


class DirectoryLock:
    """Holds a data directory for one broker, by the same file and the same kind of lock as the Java broker."""

    # The system's lock keeps out other processes only.
    _held: ClassVar[set[Path]] = set()

    def __init__(self, directory: Path, files: Files = OS_FILES) -> None:
        files.make_directories(directory)
        self._files = files
        self._directory = directory.resolve()
        if self._directory in self._held:
            raise self._in_use(directory)
        self._descriptor = files.open(directory / "lock", create=True)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            files.close(self._descriptor)
            raise self._in_use(directory) from None
        self._held.add(self._directory)

    @staticmethod
    def _in_use(directory: Path) -> StateError:
        return StateError(
            f"the data directory {directory} is in use by another broker: stop that, or give another directory"
        )

    def release(self) -> None:
        self._held.discard(self._directory)
        self._files.close(self._descriptor)


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


def _is_empty(directory: Path) -> bool:
    """Whether a directory holds nothing; it may hold very much."""
    with os.scandir(directory) as found:
        return next(found, None) is None


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

    def sync(self, begin: int, end: int) -> None:
        """Return when what was written from ``begin`` to ``end`` is on the disk. May run in another thread than the
        writes."""
        for segment in list(self.files):
            if segment.end > begin and segment.start < end:
                segment.sync()

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
            if not directory.is_dir() or not _is_empty(directory):
                return
            self._system.rmdir(directory)

    def close(self) -> None:
        for segment in self.files:
            segment.close()
        self.files = []
        self._by_start = {}
