"""The two small files that say how a store was left: ``abort`` and ``checkpoint``.

``abort`` is there while a broker runs: whoever finds it on start knows that the last run did not end cleanly.
``checkpoint`` holds the times up to which the log, the consume queues and the index are on the disk, as the Java
broker writes them, and behind these, in the part of the page that Java leaves alone, evenq's own mark: a log offset
up to which both the log and the consume queues are on the disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from evenq.broker.store.files import replace_file

__all__ = ["AbortFile", "Checkpoint"]

_PAGE = 4096
_TIMES = struct.Struct(">qqqqq")
_MARK = struct.Struct(">8sqq")
_MARK_AT = 64
_MAGIC = b"evenq-01"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Milliseconds of the newest message on the disk: in the log, in the consume queues, in the index; and the mark.

    >>> Checkpoint.decode(Checkpoint(5, 4, 3, mark=100).encode())
    Checkpoint(log_time=5, queue_time=4, index_time=3, mark=100)
    """

    log_time: int = 0
    queue_time: int = 0
    index_time: int = 0
    mark: int = 0

    def encode(self) -> bytes:
        page = bytearray(_PAGE)
        _TIMES.pack_into(page, 0, self.log_time, self.queue_time, self.index_time, 0, 0)
        # The mark twice, the second time inverted: a page of anything else is not taken for one.
        _MARK.pack_into(page, _MARK_AT, _MAGIC, self.mark, ~self.mark)
        return bytes(page)

    @classmethod
    def decode(cls, page: bytes) -> Checkpoint:
        page = page.ljust(_PAGE, b"\0")
        log_time, queue_time, index_time, _, _ = _TIMES.unpack_from(page)
        magic, mark, inverted = _MARK.unpack_from(page, _MARK_AT)
        return cls(log_time, queue_time, index_time, mark if magic == _MAGIC and inverted == ~mark else 0)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        try:
            return cls.decode(path.read_bytes())
        except FileNotFoundError:
            return cls()

    def save(self, path: Path) -> None:
        replace_file(path, self.encode())

    @property
    def safe_time(self) -> int:
        """Messages stored before this time are in the log and in the consume queues; Java's own margin is 3 s."""
        return max(0, min(self.log_time, self.queue_time) - 3000)


class AbortFile:
    """There from :meth:`raise_` until :meth:`lower`: found at a start, it tells of a run that was cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def found(self) -> bool:
        return self.path.exists()

    def raise_(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    def lower(self) -> None:
        self.path.unlink(missing_ok=True)
