"""Reading records in the commit log where they lie, to find out whether they are whole and which queue they are of."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

from evenq.broker.store.commitlog import BLANK_MAGIC
from evenq.broker.store.origins import origin_of
from evenq.broker.store.seal import has_seal, is_sealed
from evenq.protocol.filters import tag_code
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import find_property
from evenq.protocol.records import MAGIC_V1, MAGIC_V2, body_crc

__all__ = ["BLANK", "Entry", "read_entry", "sizes_at", "store_time"]

_HEAD = struct.Struct(">iIiiiqqi")
_BORN_AT = _HEAD.size + 8
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_BYTE = struct.Struct(">B")

_BORN_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_V6 = int(SysFlag.STORE_HOST_V6)


class Entry(NamedTuple):
    """What the store must know of a record."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    store_time: int
    sys_flag: int
    # the log offset of the record that this one was made of, if it was
    origin: int | None = None
    # whether zeros in the properties may be their own, or the sign of a write that was cut off
    doubtful: bool = False


# Stands for the marker that fills the rest of a file.
BLANK = Entry(0, "", 0, 0, 0, 0, 0)


def read_entry(data: mmap.mmap | bytes, at: int, log_offset: int) -> Entry | None:
    """The record at ``at``, which says of itself that it is at ``log_offset``; None where no whole record is.

    Whole means: the lengths fit together, the body has its checksum, and nothing of the rest is missing. A write that
    was cut off leaves zeros. Topics hold none, and properties that do have a checksum (:mod:`evenq.broker.store.seal`).
    Where they have none, as versions before that wrote them, the record is ``doubtful``.
    """
    room = len(data) - at
    if room < 8:
        return None
    size, magic = _INT.unpack_from(data, at)[0], int.from_bytes(data[at + 4 : at + 8], "big")
    if magic == BLANK_MAGIC:
        return BLANK
    if magic not in (MAGIC_V1, MAGIC_V2) or not _HEAD.size < size <= room:
        return None
    record = data[at : at + size]
    try:
        return _parse(record, magic, log_offset)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _parse(record: bytes, magic: int, log_offset: int) -> Entry | None:
    size, _, crc, queue_id, _, queue_offset, own_offset, sys_flag = _HEAD.unpack_from(record)
    stored_at = _BORN_AT + (20 if sys_flag & _BORN_V6 else 8)
    body_at = stored_at + 8 + (20 if sys_flag & _STORE_V6 else 8) + 4 + 8 + 4
    (body_size,) = _INT.unpack_from(record, body_at - 4)
    topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
    topic_size = record[topic_at - 1] if magic == MAGIC_V1 else _SHORT.unpack_from(record, topic_at - 2)[0]
    tail_at = topic_at + topic_size + 2
    (tail_size,) = _SHORT.unpack_from(record, tail_at - 2)
    topic, tail = record[topic_at : tail_at - 2], record[tail_at:]
    if own_offset != log_offset or body_size < 0 or tail_at + tail_size != size:
        return None
    if 0 in topic:
        return None
    zeros = 0 in tail
    if zeros and has_seal(tail) and not is_sealed(record):
        return None
    if body_crc(record[body_at : body_at + body_size]) != crc:
        return None
    tags = find_property(tail, b"TAGS")
    code = tag_code(tags.decode(errors="replace")) if tags else 0
    (stored,) = _LONG.unpack_from(record, stored_at)
    (prepared,) = _LONG.unpack_from(record, body_at - 12)
    origin = origin_of(prepared, sys_flag)
    doubtful = zeros and not has_seal(tail)
    return Entry(size, topic.decode(), queue_id, queue_offset, code, stored, sys_flag, origin, doubtful)


def sizes_at(data: mmap.mmap | bytes, at: int, log_offset: int) -> list[int]:
    """How large a damaged record at ``at`` may be, the likelier size first.

    Its own size counts if the magic number behind it is right. What the sizes of its parts come to counts if the log
    offset before them is right, and if that is its own size, or the body that they cut out has the record's checksum:
    other bytes may be foreign, and lead anywhere.
    """
    if len(data) - at < _HEAD.size:
        return []
    size, magic, crc, _, _, _, own_offset, sys_flag = _HEAD.unpack_from(data, at)
    sizes = [size] if magic in (MAGIC_V1, MAGIC_V2) else []
    if own_offset == log_offset:
        body_at = at + _BORN_AT + (20 if sys_flag & _BORN_V6 else 8) + 8 + (20 if sys_flag & _STORE_V6 else 8) + 16
        topic_size = _SHORT if magic == MAGIC_V2 else _BYTE
        try:
            (body_size,) = _INT.unpack_from(data, body_at - 4)
            body_end = body_at + max(body_size, 0)
            tail_at = body_end + topic_size.size + topic_size.unpack_from(data, body_end)[0]
            parts = tail_at + 2 + _SHORT.unpack_from(data, tail_at)[0] - at
        except struct.error:
            return sizes
        if parts == size or body_crc(data[body_at:body_end]) == crc:
            sizes.append(parts)
    return sizes


def store_time(record: bytes) -> int:
    """When a record was stored, in milliseconds."""
    (sys_flag,) = _INT.unpack_from(record, _HEAD.size - 4)
    (stored,) = _LONG.unpack_from(record, _BORN_AT + (20 if sys_flag & _BORN_V6 else 8))
    return int(stored)
