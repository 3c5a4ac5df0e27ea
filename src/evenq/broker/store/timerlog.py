"""The timer log: for each message that waits for its time, where it is in the commit log and in which second it is due.

RocketMQ's ``timerlog/``: files of units of 52 bytes, appended. The units of one second are a chain, each names the one
before it. Which unit is the last of each second stands in the Java broker's ``timerwheel``, which it makes anew from
this log; so does evenq, in memory.

``config/timercheck`` says how far timers are served (:class:`TimerCheckpoint`), as the Java broker keeps it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from evenq.broker.store.files import OS_FILES, Files, Segments
from evenq.errors import StateError

__all__ = ["DELETE", "FILE_SIZE", "NORMAL", "NO_UNIT", "ROLL", "TimerCheckpoint", "TimerLog", "TimerUnit"]

FILE_SIZE = 100 * 1024 * 1024

# What is to be done with a message when its second has come: deliver it, but if it is far away let it wait once more,
# or, if it is one that takes another back, let that one lapse.
NORMAL, ROLL, DELETE = 1, 2, 4
_KNOWN_KINDS = 0xF

NO_UNIT = -1

_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqI")
_BLANK_MAGIC = 0xCBD43194


class TimerUnit(NamedTuple):
    """One message: ``previous`` is the position of the unit before it in its second, times are in milliseconds."""

    previous: int
    kind: int
    written: int
    delay: int
    log_offset: int
    size: int
    topic_hash: int

    @property
    def second(self) -> int:
        """The second in which it is due, in milliseconds."""
        return self.written + self.delay


class TimerLog:
    """Units by position.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     log = TimerLog(Path(root), 1024)
    ...     first = log.append(TimerUnit(NO_UNIT, NORMAL, 5000, 2000, 4096, 120, 0))
    ...     log.append(TimerUnit(first, NORMAL, 5000, 2000, 4216, 80, 0))
    ...     [unit.log_offset for _, unit in log.units()]
    52
    [4096, 4216]
    """

    def __init__(self, directory: Path, file_size: int = FILE_SIZE, files: Files = OS_FILES) -> None:
        self._file_size = file_size
        self._segments = Segments(directory, file_size, files)
        # until the owner has found the true end by `cut`, nothing may be appended
        self._end = self._segments.end
        # up to where everything is on the disk
        self._synced = 0

    def units(self) -> Iterator[tuple[int, TimerUnit]]:
        """All units with their positions, up to the first that is not whole.

        After a power failure, perhaps only the first of two sectors that hold a unit is on the disk. The border of
        sectors never cuts a four-byte field. So if the message size is not 0, the log offset before it is complete.
        """
        whole = self._file_size // _UNIT.size * _UNIT.size
        for segment in self._segments.files:
            with memoryview(segment.map) as content:
                for at, unit in zip(
                    range(segment.start, segment.end, _UNIT.size), _UNIT.iter_unpack(content[:whole]), strict=False
                ):
                    size, previous, kind, written, delay, log_offset, message_size, topic_hash, _ = unit
                    if kind & 0xFFFFFFFF == _BLANK_MAGIC:
                        break
                    if size != _UNIT.size or kind | _KNOWN_KINDS != _KNOWN_KINDS or message_size <= 0:
                        return
                    yield at, TimerUnit(previous, kind, written, delay, log_offset, message_size, topic_hash)

    def append(self, unit: TimerUnit) -> int:
        """Add a unit; its position."""
        room = self._file_size - self._end % self._file_size
        if room < _UNIT.size + _BLANK.size:
            self._segments.write(self._end, _BLANK.pack(room, 0, _BLANK_MAGIC))
            self._end += room
        position = self._end
        self._segments.write(position, _UNIT.pack(_UNIT.size, *unit, 0))
        self._end += _UNIT.size
        return position

    def read(self, position: int) -> TimerUnit:
        segment = self._segments.at(position)
        return TimerUnit(*_UNIT.unpack_from(segment.map, position - segment.start)[1:-1])

    def behind(self, position: int) -> int:
        """The position behind the unit at ``position``, where the next may be."""
        return position + _UNIT.size

    def cut(self, position: int) -> None:
        """Make ``position`` the end; what is behind it is gone, on the disk too: it would pass for units of messages
        that come later."""
        self._segments.cut_on_disk(position)
        self._end = position
        self._synced = min(self._synced, position)

    def trim(self, log_offset: int) -> None:
        """Drop files all of whose messages are in front of ``log_offset``, where the commit log begins now."""
        while len(self._segments.files) > 1 and self._last(0).log_offset < log_offset:
            self._segments.drop(self._segments.files[0])

    def _last(self, file: int) -> TimerUnit:
        count = (self._file_size - _BLANK.size) // _UNIT.size
        return self.read(self._segments.files[file].start + (count - 1) * _UNIT.size)

    def sync(self) -> None:
        """Return when all units are on the disk. May run in another thread."""
        target = self._end
        self._segments.sync(self._synced, target)
        self._synced = target

    def close(self) -> None:
        self._segments.close()


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
