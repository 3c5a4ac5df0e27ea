"""What a broker keeps beside the messages: settings, offsets, and how the store was left.

:class:`StateFile` is a small file that is replaced whole. Three names belong to each: the file, the ``.bak`` of it, and
the ``.tmp`` that takes its place when it is complete. The ``.bak`` is always a version that was on the disk, so one of
the two can be read whenever the machine stops.

:class:`ConfigFiles` are the settings and offsets in ``config/``, as the Java broker writes them.

``abort`` is there while a broker runs: whoever finds it on start knows that the last run did not end cleanly.
``checkpoint`` holds the times up to which the log, the consume queues and the index are on the disk, as the Java
broker writes them, and behind these, in the part of the page that Java leaves alone, evenq's own mark: a log offset
up to which both the log and the consume queues are on the disk. The mark has a checksum. With it stands the time of the
log, by which evenq knows whether the Java broker has written the page since.
"""

from __future__ import annotations

import logging
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from evenq.broker.store.files import OS_FILES, Files, write_beside
from evenq.errors import EvenqError, StateError
from evenq.protocol.bodies import Body, DelayOffsetTable, GroupConfigTable, OffsetTable, TopicConfigTable

__all__ = ["AbortFile", "Checkpoint", "ConfigFiles", "StateFile"]

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


B = TypeVar("B", bound=Body)


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    def decode(content: bytes) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise StateError(str(error)) from None

    return decode


class ConfigFiles:
    """``topics.json``, ``subscriptionGroup.json``, ``consumerOffset.json``, ``delayOffset.json``, and evenq's own
    ``deletedTopics.json`` and ``deletingTopics.json``. What is saved survives this process; :meth:`sync` brings it to
    the disk."""

    def __init__(self, directory: Path, files: Files = OS_FILES) -> None:
        names = (
            "topics.json",
            "subscriptionGroup.json",
            "consumerOffset.json",
            "delayOffset.json",
            "deletedTopics.json",
            "deletingTopics.json",
        )
        self._files = {name: StateFile(directory / name, files) for name in names}

    def sync(self) -> None:
        """Return when all that was saved is on the disk. May run in another thread."""
        for file in self._files.values():
            file.sync()

    def load_topics(self) -> TopicConfigTable:
        return self._load("topics.json", TopicConfigTable) or TopicConfigTable()

    def save_topics(self, table: TopicConfigTable) -> None:
        self._save("topics.json", table)

    def load_groups(self) -> GroupConfigTable:
        return self._load("subscriptionGroup.json", GroupConfigTable) or GroupConfigTable()

    def save_groups(self, table: GroupConfigTable) -> None:
        self._save("subscriptionGroup.json", table)

    def load_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """Offsets by topic and group."""
        saved = self._load("consumerOffset.json", OffsetTable) or OffsetTable()
        table = {}
        for key, queues in saved.offset_table.items():
            topic, _, group = key.rpartition("@")
            table[topic, group] = dict(queues)
        return table

    def save_offsets(self, table: dict[tuple[str, str], dict[int, int]]) -> None:
        flat = {f"{topic}@{group}": queues for (topic, group), queues in table.items()}
        self._save("consumerOffset.json", OffsetTable(offset_table=flat))

    def load_delay_offsets(self) -> DelayOffsetTable:
        return self._load("delayOffset.json", DelayOffsetTable) or DelayOffsetTable()

    def save_delay_offsets(self, table: DelayOffsetTable) -> None:
        self._save("delayOffset.json", table)

    def load_deleted_topics(self) -> dict[str, int]:
        """Topics that were deleted, each with the log offset before which its messages are gone."""
        return self._files["deletedTopics.json"].load(_decoder(dict[str, int])) or {}

    def save_deleted_topics(self, table: dict[str, int]) -> None:
        self._files["deletedTopics.json"].save(msgspec.json.encode(table))

    def load_deleting_topics(self) -> Sequence[str]:
        """Topics whose deletion had begun and not ended."""
        return self._files["deletingTopics.json"].load(_decoder(list[str])) or ()

    def save_deleting_topics(self, names: Sequence[str]) -> None:
        self._files["deletingTopics.json"].save(msgspec.json.encode(names))

    def _load(self, name: str, kind: type[B]) -> B | None:
        return self._files[name].load(kind.decode)

    def _save(self, name: str, body: Body) -> None:
        self._files[name].save(body.encode(standard=True))


_PAGE = 4096
_TIMES = struct.Struct(">qqqqq")
_MARK = struct.Struct(">8sqq")
_MARK_AT = 64
_MAGIC = b"evenq-02"
# of the 24 bytes before it
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_AT = _MARK_AT + _MARK.size
# what evenq wrote before it had a checksum: the mark, and the mark inverted
_OLD_MAGIC = b"evenq-01"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Milliseconds of the newest message on the disk: in the log, in the consume queues, in the index; and the mark.

    ``by_java`` says that the times are not those that evenq wrote.

    >>> Checkpoint.decode(Checkpoint(5, 4, 3, mark=100).encode())
    Checkpoint(log_time=5, queue_time=4, index_time=3, mark=100, by_java=False)
    """

    log_time: int = 0
    queue_time: int = 0
    index_time: int = 0
    mark: int = 0
    by_java: bool = False

    def encode(self) -> bytes:
        page = bytearray(_PAGE)
        _TIMES.pack_into(page, 0, self.log_time, self.queue_time, self.index_time, 0, 0)
        _MARK.pack_into(page, _MARK_AT, _MAGIC, self.mark, self.log_time)
        _CHECKSUM.pack_into(page, _CHECKSUM_AT, zlib.crc32(page[_MARK_AT:_CHECKSUM_AT]))
        return bytes(page)

    @classmethod
    def decode(cls, page: bytes) -> Checkpoint:
        """Read a page; a mark that is damaged counts as none."""
        if len(page) < _CHECKSUM_AT + _CHECKSUM.size:
            raise StateError(f"it has {len(page)} bytes and must have {_PAGE}")
        log_time, queue_time, index_time, _, _ = _TIMES.unpack_from(page)
        magic, mark, other = _MARK.unpack_from(page, _MARK_AT)
        (checksum,) = _CHECKSUM.unpack_from(page, _CHECKSUM_AT)
        if magic == _MAGIC and checksum == zlib.crc32(page[_MARK_AT:_CHECKSUM_AT]):
            return cls(log_time, queue_time, index_time, mark, by_java=other != log_time)
        if magic == _OLD_MAGIC and other == ~mark:
            return cls(log_time, queue_time, index_time, mark)
        return cls(log_time, queue_time, index_time, by_java=True)

    @property
    def safe_time(self) -> int:
        """Messages stored before this time are in the log and in the consume queues; Java's own margin is 3 s."""
        return max(0, min(self.log_time, self.queue_time) - 3000)


class AbortFile:
    """There from :meth:`set` until :meth:`clear`: found at a start, it tells of a run that was cut off."""

    def __init__(self, path: Path, files: Files = OS_FILES) -> None:
        self.path = path
        self._files = files

    @property
    def found(self) -> bool:
        return self.path.exists()

    def set(self) -> None:
        """Make the file, and return when its name is on the disk: later writes may reach it at any time."""
        self._files.make_directories(self.path.parent)
        self._files.close(self._files.open(self.path, create=True))
        self._files.sync_names(self.path)

    def clear(self) -> None:
        if self.found:
            self._files.unlink(self.path)
            self._files.sync_names(self.path)
