"""``config/timercheck``: how far timers are served, as the Java broker keeps it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from evenq.errors import StateError

__all__ = ["TimerCheckpoint"]

_PAGE = 4096
_FIELDS = struct.Struct(">qqqq")
# Behind what Java uses of the page: a second, and how many of its messages are delivered.
_OWN = struct.Struct(">8sqq")
_OWN_AT = 64
_MAGIC = b"evenq-01"


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """Everything due before the second ``read_time`` (in milliseconds) is delivered, and ``done`` messages of that
    second; every message before ``queue_offset`` of the timers' queue is in the timer log.

    >>> TimerCheckpoint.decode(TimerCheckpoint(5000, 7, 2).encode())
    TimerCheckpoint(read_time=5000, queue_offset=7, done=2)
    """

    read_time: int = 0
    queue_offset: int = 0
    done: int = 0

    def encode(self) -> bytes:
        page = bytearray(_PAGE)
        # The 0 is up to where the timer wheel holds what is in the timer log: Java makes its wheel anew from all of it.
        _FIELDS.pack_into(page, 0, self.read_time, 0, self.queue_offset, self.queue_offset)
        _OWN.pack_into(page, _OWN_AT, _MAGIC, self.read_time, self.done)
        return bytes(page)

    @classmethod
    def decode(cls, page: bytes) -> TimerCheckpoint:
        if len(page) < _OWN_AT + _OWN.size:
            raise StateError(f"it has {len(page)} bytes and must have {_PAGE}")
        read_time, _, queue_offset, master_offset = _FIELDS.unpack_from(page)
        magic, second, done = _OWN.unpack_from(page, _OWN_AT)
        # Java leaves this part alone when it goes on.
        ours = magic == _MAGIC and second == read_time
        return cls(read_time, min(queue_offset, master_offset), done if ours else 0)
