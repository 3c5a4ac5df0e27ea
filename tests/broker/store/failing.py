"""Files of which one operation fails: the disk is full, or broken."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from evenq.broker.store.files import Files

__all__ = ["NEED_SPACE", "OPERATIONS", "FailingFiles"]

# what fails while a disk is full, and what can fail when something is written
NEED_SPACE = ("open", "pwrite", "rename", "mkdir")
OPERATIONS = ("open", "pwrite", "truncate", "datasync", "sync_directory", "rename", "unlink", "mkdir", "rmdir")


class FailingFiles(Files):
    """Counts operations, and lets some of them fail.

    >>> files = FailingFiles()
    >>> files.fail(at=1, operation="mkdir")
    >>> files.make_directories(Path("/nowhere/at/all"))
    Traceback (most recent call last):
    ...
    OSError: [Errno 28] No space left on device
    """

    def __init__(self) -> None:
        super().__init__()
        # how many operations there were, and what the first one that failed was
        self.count = 0
        self.failed = ""
        self._first, self._last = 0, 0
        self._operations: Sequence[str] = OPERATIONS
        self._error = errno.ENOSPC
        self._short: int | None = None

    def fail(
        self,
        *,
        at: int,
        times: int = 1,
        operation: str | None = None,
        operations: Sequence[str] = OPERATIONS,
        error: int = errno.ENOSPC,
        short: int | None = None,
    ) -> None:
        """Let the ``at``-th of these operations from now on fail, and those behind it, ``times`` in all.

        ``short``: a write takes so many bytes, and the next one fails.
        """
        self.count, self.failed = 0, ""
        self._first, self._last = at, at + times - 1
        self._operations = operations if operation is None else (operation,)
        self._error, self._short = error, short

    def _count(self, operation: str, path: object) -> bool:
        """Whether this one fails."""
        if operation not in self._operations:
            return False
        self.count += 1
        failing = self._first <= self.count <= self._last
        if failing and not self.failed:
            self.failed = f"{operation} {path}"
        return failing

    def _check(self, operation: str, path: object) -> None:
        if self._count(operation, path):
            raise OSError(self._error, os.strerror(self._error))

    def open(self, path: Path, *, create: bool = False, empty: bool = False) -> int:
        if create or empty:
            self._check("open", path)
        return super().open(path, create=create, empty=empty)

    def pwrite(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        if self._count("pwrite", descriptor):
            if self._short is None:
                raise OSError(self._error, os.strerror(self._error))
            # what is left of it comes as the next write
            self._last, short, self._short = self._last + 1, self._short, None
            with memoryview(data) as view:
                return super().pwrite(descriptor, view[: max(1, min(short, len(view) - 1))], at)
        return super().pwrite(descriptor, data, at)

    def truncate(self, descriptor: int, size: int) -> None:
        self._check("truncate", descriptor)
        super().truncate(descriptor, size)

    def datasync(self, descriptor: int) -> None:
        self._check("datasync", descriptor)
        super().datasync(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._check("sync_directory", path)
        super().sync_directory(path)

    def rename(self, path: Path, target: Path) -> None:
        self._check("rename", target)
        super().rename(path, target)

    def unlink(self, path: Path) -> None:
        self._check("unlink", path)
        super().unlink(path)

    def rmdir(self, path: Path) -> None:
        self._check("rmdir", path)
        super().rmdir(path)

    def mkdir(self, path: Path) -> None:
        self._check("mkdir", path)
        super().mkdir(path)
