"""Small files: replaced in one step, so that a reader finds the old content or the new; and the lock of a directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from evenq.errors import StateError

__all__ = ["DirectoryLock", "read_or_backup", "replace_file"]


def replace_file(path: Path, content: bytes, *, backup: bool = False, sync: bool = True) -> None:
    """Write ``content`` beside ``path`` and put it in its place in one step; ``backup`` keeps the old as ``.bak``.

    Without ``sync`` the disk is not waited for: the new content survives this process at once, the machine soon.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(descriptor, content)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    if backup and path.exists():
        path.replace(path.with_name(f"{path.name}.bak"))
    beside.replace(path)


def read_or_backup(path: Path) -> bytes | None:
    """The content of ``path``, or of its backup where it is missing or empty, or None."""
    for candidate in (path, path.with_name(f"{path.name}.bak")):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if content.strip():
            return content
    return None


class DirectoryLock:
    """Holds a data directory for this process, by the same file and the same kind of lock as the Java broker."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            os.close(self._descriptor)
            raise StateError(
                f"the data directory {directory} is in use by another broker: stop that, or give another directory"
            ) from None

    def release(self) -> None:
        os.close(self._descriptor)
