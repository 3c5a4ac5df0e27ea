"""The two small files that say how a store was left: ``abort`` and ``checkpoint``.

``abort`` is there while a broker runs: whoever finds it on start knows that the last run did not end cleanly.
``checkpoint`` holds the times up to which the log, the consume queues and the index are on the disk, as the Java
broker writes them, and behind these, in the part of the page that Java leaves alone, evenq's own mark: a log offset
up to which both the log and the consume queues are on the disk. The mark has a checksum. With it stands the time of the
log, by which evenq knows whether the Java broker has written the page since.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from evenq.broker.store.files import OS_FILES, Files
from evenq.errors import StateError

__all__ = ["AbortFile", "Checkpoint"]

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
