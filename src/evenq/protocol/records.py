"""Messages as brokers store them and as pulls carry them: one record after the other.

A record is 88 bytes of fixed fields (12 more for each host that is IPv6), the body, the topic and the properties::

    total size:4  magic:4  body crc:4  queue id:4  flag:4  queue offset:8  commit log offset:8  sys flag:4
    born:8  born host:8|20  stored:8  store host:8|20  reconsumed:4  prepared offset:8
    body size:4  body  topic size:1|2  topic  properties size:2  properties

The magic number tells the two versions apart: a topic of more than 127 bytes needs the second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import repeat
from typing import Any
from zlib import crc32

import msgspec

from evenq.errors import ProtocolError, RecordError
from evenq.protocol.batch import decode_batch
from evenq.protocol.compression import MAX_UNPACKED, UNPACKED_AT_ONCE, decompress
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import Properties, decode_properties
from evenq.protocol.recordform import MAGIC_V1, MAGIC_V2, RecordForm, body_crc
from evenq.protocol.view import COMMIT_LOG_OFFSET_AT, HEAD_SIZE, SYS_FLAG_AT, MessageView, with_fields

__all__ = [
    "COMMIT_LOG_OFFSET_AT",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "MIN_RECORD",
    "QUEUE_OFFSET_AT",
    "STORE_TIMESTAMP_AT",
    "body_crc",
    "decode_messages",
    "decode_some",
    "encode_record",
    "is_batch",
    "split_records",
]

# What fills the end of a commit log file; never sent to anyone.
MAGIC_BLANK = 0xCBD43194

# Where a store fills in what it only knows when it appends (the last one with an IPv4 born host).
QUEUE_OFFSET_AT = 20
STORE_TIMESTAMP_AT = 56

# The two lengths that end the shortest record there can be.
MIN_RECORD = 88 + 3

_COMPRESSED = int(SysFlag.COMPRESSED)
_BORN_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_V6 = int(SysFlag.STORE_HOST_V6)
_HOSTS_V6 = _BORN_V6 | _STORE_V6
_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_UNUSUAL = _COMPRESSED | _HOSTS_V6 | _BATCH

_SIZE = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_TOPIC_V1 = struct.Struct(">b")
# What must be known of a record before it is a message, by the hosts that are IPv6; the rest is read by MessageView.
_FIXED = {
    hosts: struct.Struct(f">iIii4xq{HEAD_SIZE - 28 + 12 * hosts.bit_count()}xi")
    for hosts in (0, _BORN_V6, _STORE_V6, _HOSTS_V6)
}
_FIXED_V4 = _FIXED[0]
# of a record with IPv4 hosts: its size, and that of its body
_read_sizes = struct.Struct(">i80xi").unpack_from


def split_records(body: bytes, most: int | None = None) -> list[int]:
    """Where each record begins, or each of the first ``most``. Only the chain of sizes is looked at.

    >>> split_records(bytes(88 + 3))
    Traceback (most recent call last):
    ...
    evenq.errors.ProtocolError: a record of 0 bytes at 0 of 91: a record has at least 91
    """
    starts: list[int] = []
    at, end = 0, len(body)
    size_at, note = _SIZE.unpack_from, starts.append
    last = end - MIN_RECORD
    for _ in repeat(None) if most is None else repeat(None, most):
        if at > last:
            break
        (size,) = size_at(body, at)
        if size < MIN_RECORD:
            break
        note(at)
        at += size
    else:
        return starts
    if at != end:
        # raises: one of the two is not as it should be
        _size_at(body, at if at < end else starts[-1])
    return starts


def is_batch(body: bytes, at: int) -> bool:
    """Whether the record that begins there is a batch that its broker stored as one, under the offset of its first
    message."""
    flags: int = _SIZE.unpack_from(body, at + SYS_FLAG_AT)[0]
    return flags & _BATCH == _BATCH


def decode_messages(
    body: bytes,
    *,
    broker: str = "",
    check_crc: bool = True,
    as_stored: bool = False,
    poisoned: list[RecordError] | None = None,
) -> list[MessageView]:
    """Read all records of a pull's answer; bodies come decompressed, and batches that are one record taken apart, or
    both ``as_stored``.

    A record that is itself whole but cannot be read (damaged compression, a wrong checksum) raises a RecordError; with
    a list for ``poisoned`` it is put there instead, and the others are read. The checksum 0 stands for none. A broken
    chain of records is always a ProtocolError that names the position.
    """
    data = bytes(body)
    messages, end = decode_some(
        data,
        0,
        len(data),
        broker=broker,
        check_crc=check_crc,
        as_stored=as_stored,
        poisoned=poisoned,
        room=MAX_UNPACKED,
    )
    if end < len(data):
        raise ProtocolError(f"records of {len(data)} bytes whose bodies become more than {MAX_UNPACKED} bytes")
    return messages


def decode_some(
    data: bytes,
    at: int,
    most: int,
    *,
    broker: str = "",
    check_crc: bool = True,
    as_stored: bool = False,
    poisoned: list[RecordError] | None = None,
    room: int = UNPACKED_AT_ONCE,
) -> tuple[list[MessageView], int]:
    """The same for about ``most`` records from ``at`` on; tells where the next one begins. Fewer where compressed
    bodies become more than ``room`` bytes: the one that is too much is the last."""
    messages: list[MessageView] = []
    end = len(data)
    while at < end and len(messages) < most and room >= 0:
        at = _decode_usual(data, at, broker, check_crc, messages, most - len(messages))
        if at == end or len(messages) >= most:
            break
        size = _size_at(data, at)
        try:
            room -= _decode_one(data, at, broker, check_crc, as_stored, messages)
        except RecordError as error:
            if poisoned is None:
                raise
            poisoned.append(error)
        at += size
    return messages, at


def _size_at(data: bytes, at: int) -> int:
    """The size of the record at ``at``, all of which must be there."""
    end = len(data)
    size: int = _SIZE.unpack_from(data, at)[0] if at <= end - MIN_RECORD else MIN_RECORD
    if size < MIN_RECORD:
        raise ProtocolError(f"a record of {size} bytes at {at} of {end}: a record has at least {MIN_RECORD}")
    if at + size > end:
        raise ProtocolError(f"a record at {at} of {end}: it is cut off")
    return size


def _decode_usual(data: bytes, at: int, broker: str, check_crc: bool, messages: list[MessageView], most: int) -> int:
    """Read at most so many messages from ``at`` on by the short way that nearly all can go: first version, IPv4, one
    body as it is.

    Ends at the first one that cannot go it, or where something does not fit together, which the long way explains;
    tells where that is. Most records are like the one before: they are read by the same form, in one go.
    """
    last = len(data) - MIN_RECORD
    sizes, looked, named, topic = b"", False, b"", ""
    wire_size = body_size = topic_size = properties_size = -1
    unpack: Callable[[bytes, int], tuple[Any, ...]] = _FIXED_V4.unpack_from
    for _ in repeat(None, most):
        if at > last:
            break
        if data[at : at + 4] != sizes:
            wire_size, body_size = _read_sizes(data, at)
            topic_at = at + _FIXED_V4.size + body_size
            if wire_size < MIN_RECORD + body_size or body_size < 0 or at + wire_size > len(data):
                break
            sizes, topic_size = data[at : at + 4], data[topic_at]
            properties_size = wire_size - MIN_RECORD - body_size - topic_size
            if properties_size < 0:
                break
            unpack, looked = _form(body_size, topic_size, properties_size), True
        elif at + wire_size > len(data):
            break
        (
            magic, crc, queue_id, queue_offset, log_offset_top, sys_flag,
            found_body, body, found_topic, name, found_properties, properties,
        ) = unpack(data, at)  # fmt: skip
        if found_body != body_size or found_topic != topic_size or found_properties != properties_size:
            if looked:
                break
            # as large as the one before, but otherwise divided
            sizes = b""
            continue
        if sys_flag & _UNUSUAL or magic != MAGIC_V1 or log_offset_top > 0x7F:
            break
        if check_crc and crc32(body) & 0x7FFFFFFF != crc:
            break
        looked = False
        # the same on nearly all
        if name != named:
            named, topic = name, _text(name)
        # without names, which would take a fifth of the time: the fields are in their order
        messages.append(
            MessageView(
                topic,
                body,
                queue_id,
                queue_offset,
                Properties(properties),
                broker,
                wire_size,
                data[at : at + HEAD_SIZE],
            )
        )
        at += wire_size
    return at


@lru_cache(4096)
def _form(body_size: int, topic_size: int, properties_size: int) -> Callable[[bytes, int], tuple[Any, ...]]:
    """Reads what is wanted at once of a record of the first version with IPv4 hosts, whose parts have these sizes."""
    return struct.Struct(f">4xIIi4xqB7xi44xi{body_size}sB{topic_size}sH{properties_size}s").unpack_from


@lru_cache(4096)
def _text(name: bytes) -> str:
    """A topic's name: few of them are on many messages, and one text serves all."""
    return name.decode(errors="replace")


def _decode_one(
    data: bytes, at: int, broker: str, check_crc: bool, as_stored: bool, messages: list[MessageView]
) -> int:
    """Read the record at ``at``, whose total size is known to be there, onto ``messages``. Gives how many bytes its
    body has become; 0 where it was not compressed."""
    fixed = _FIXED_V4
    (sys_flag,) = _SIZE.unpack_from(data, at + SYS_FLAG_AT)
    if sys_flag & _HOSTS_V6:
        fixed = _FIXED[sys_flag & _HOSTS_V6]
        if len(data) - at < fixed.size:
            raise ProtocolError(f"a record at {at} of {len(data)}: it is cut off")
    size, magic, crc, queue_id, queue_offset, body_size = fixed.unpack_from(data, at)
    body_at = at + fixed.size
    topic_at, topic_end, end = _variable_part(data, at, size, magic, body_at, body_size)
    topic = _text(data[topic_at:topic_end])
    body = data[body_at : body_at + body_size]
    if check_crc and crc and body_crc(body) != crc:
        raise RecordError(topic, queue_id, queue_offset, f"its body has checksum {body_crc(body)}, not {crc}")
    unpacked = 0
    if sys_flag & _COMPRESSED and not as_stored:
        try:
            body = decompress(body, sys_flag)
        except ProtocolError as error:
            raise RecordError(topic, queue_id, queue_offset, str(error)) from None
        unpacked = len(body)
        sys_flag &= ~_COMPRESSED
    message = MessageView(
        topic=topic,
        body=body,
        queue_id=queue_id,
        queue_offset=queue_offset,
        properties=decode_properties(data[topic_end + 2 : end].decode(errors="replace")),
        broker=broker,
        store_size=size,
        _head=with_fields(data[at : body_at - _SIZE.size], sys_flag=sys_flag),
    )
    if sys_flag & _BATCH == _BATCH and not as_stored:
        messages += _unwrap(message)
    else:
        messages.append(message)
    return unpacked


def _variable_part(data: bytes, at: int, size: int, magic: int, body_at: int, body_size: int) -> tuple[int, int, int]:
    """Where the topic begins and ends and where the properties end. All lengths must fill the record exactly."""
    limit = at + size
    topic_size_at = body_at + body_size
    if magic == MAGIC_V1:
        length = _TOPIC_V1
    elif magic == MAGIC_V2:
        length = _SHORT
    else:
        raise ProtocolError(f"a record at {at} with magic number {magic:#x}: {MAGIC_V1:#x} and {MAGIC_V2:#x} are known")
    if body_size >= 0 and topic_size_at + length.size <= limit:
        topic_at = topic_size_at + length.size
        topic_end = topic_at + length.unpack_from(data, topic_size_at)[0]
        if topic_at <= topic_end <= limit - 2:
            end = topic_end + 2 + _SHORT.unpack_from(data, topic_end)[0]
            if end == limit:
                return topic_at, topic_end, end
    raise ProtocolError(
        f"a record of {size} bytes at {at} whose body (of {body_size}), topic and properties do not fit"
    )


def _unwrap(outer: MessageView) -> list[MessageView]:
    """The messages of a batch that the broker stored as one record: offsets count on from the record's."""
    try:
        entries = decode_batch(outer.body)
    except ProtocolError as error:
        raise RecordError(outer.topic, outer.queue_id, outer.queue_offset, str(error)) from None
    return [
        msgspec.structs.replace(
            outer,
            body=entry.body,
            queue_offset=outer.queue_offset + index,
            properties=decode_properties(entry.properties),
            _head=with_fields(outer._head, flag=entry.flag),
        )
        for index, entry in enumerate(entries)
    ]


def encode_record(
    *,
    topic: str,
    body: bytes,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    born_timestamp: int,
    born_host: str,
    store_timestamp: int,
    store_host: str,
    properties: str = "",
    sys_flag: int = 0,
    flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    crc: int | None = None,
) -> bytes:
    """The record of one message by itself; see :class:`RecordForm`. ``properties`` are in wire form."""
    form = RecordForm(
        topic=topic,
        queue_id=queue_id,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )
    return form.record(body, properties.encode(), queue_offset, commit_log_offset, flag=flag, crc=crc)
