"""Access to files. Everything that the store does with the file system goes through one :class:`Files`.

So tests can let any single operation fail, and can write down all of them to find out what a power failure leaves. Each
of these methods is one operation of the system: `open`, `pread`, `pwrite`, `truncate`, `datasync`, `sync_directory`,
`rename`, `unlink`, `mkdir` and `rmdir`. The others are made of them.

A file is on the disk only if the directory that names it is, and so on up to a directory that was there before.
``Files`` remembers the directories in which something was created, renamed or removed; :meth:`Files.sync` brings those
above a file to the disk with the file itself.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from pathlib import Path
from typing import ClassVar

from evenq.errors import StateError

__all__ = ["OS_FILES", "DirectoryLock", "Files", "SyncFailed", "write_beside"]

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
