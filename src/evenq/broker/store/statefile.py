"""Small files that are replaced whole: settings, offsets, checkpoints.

Three names belong to each: the file, the ``.bak`` of it, and the ``.tmp`` that takes its place when it is complete. The
``.bak`` is always a version that was on the disk, so one of the two can be read whenever the machine stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from evenq.broker.store.files import OS_FILES, Files, write_beside
from evenq.errors import EvenqError, StateError

__all__ = ["StateFile"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile:
    """One such file. :meth:`load` comes first; :meth:`sync` may run in another thread than :meth:`save`."""

    def __init__(self, path: Path, files: Files = OS_FILES) -> None:
        self.path = path
        self._files = files
        # counts what was saved: the version that the file has, and the last one that is on the disk
        self._version = 0
        self._synced = 0
        # whether there is a backup, which is always on the disk
        self._has_backup = self.backup.exists()
        self._changing = threading.Lock()

    @property
    def backup(self) -> Path:
        return self.path.with_name(f"{self.path.name}.bak")

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """What the file holds, or its ``.bak`` if it is missing, empty or damaged. None if there is neither.

        ``decode`` raises an :exc:`EvenqError` for a damaged content. The damaged file is kept as ``.damaged``.
        """
        damage: EvenqError | None = None
        for path in (self.path, self.backup):
            content = self._read(path)
            if content is None:
                continue
            try:
                found = decode(content)
            except EvenqError as error:
                damage = damage or error
                continue
            if path == self.path:
                # perhaps the system has not written it to the disk yet
                self._version = 1
            elif damage is not None:
                aside = self.path.with_name(f"{self.path.name}.damaged")
                self._files.rename(self.path, aside)
                log.warning("%s is damaged (%s): %s is used, the other kept as %s", self.path, damage, path, aside)
            return found
        if damage is not None:
            raise StateError(f"{self.path} cannot be read ({damage}), nor can its .bak: mend or remove them")
        return None

    def _read(self, path: Path) -> bytes | None:
        """The content of a file; None if it is missing, empty or nothing but zeros."""
        try:
            content = self._files.read(path)
        except FileNotFoundError:
            return None
        return content if content.strip(b"\0 \t\r\n") else None

    def save(self, content: bytes) -> None:
        """Replace the file. It survives this process now, the machine after the next :meth:`sync`.

        Where the power fails in between, a start uses the backup. So where there is none, this waits for the disk.
        """
        beside = write_beside(self.path, content, files=self._files, sync=not self._has_backup and not self._is_synced)
        with self._changing:
            if self._is_synced:
                # From here until the new file has its name, a start would use the backup.
                self._files.rename(self.path, self.backup)
                self._has_backup = True
                self._synced = 0
            self._files.rename(beside, self.path)
            self._version += 1

    @property
    def _is_synced(self) -> bool:
        return self._version == self._synced != 0

    def sync(self) -> None:
        """Return when what was saved before this call is on the disk."""
        while self._version != self._synced:
            version = self._version
            try:
                descriptor = self._files.open(self.path)
            except FileNotFoundError:
                # it could not be replaced, or is just being replaced: the backup is on the disk
                return
            try:
                self._files.sync(descriptor, self.path)
            finally:
                self._files.close(descriptor)
            with self._changing:
                if self._version == version:
                    self._synced = version
