"""Writing small files so that a reader finds the old content or the new, never a part."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["read_or_backup", "replace_file"]


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
