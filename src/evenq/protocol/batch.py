"""Many messages in one send (320), and in one record where a broker stores batches whole.

Each is ``total size:4  magic:4 (0)  crc:4 (0)  flag:4  body size:4  body  properties size:2  properties``; topic, queue
and time are those of the send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from evenq.errors import ArgumentError, ProtocolError

__all__ = [
    "BODY_AT",
    "BatchEntry",
    "BatchPart",
    "decode_batch",
    "encode_batch",
    "encode_entry",
    "read_head",
    "split_batch",
]

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")

# where the body is in a message of a batch
BODY_AT = _HEAD.size
# of a message of a batch: its size, its flag, and the size of its body
read_head = struct.Struct(">i8xii").unpack_from


class BatchEntry(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch; ``properties`` are in wire form."""

    body: bytes
    properties: str = ""
    flag: int = 0


def encode_entry(body: bytes, properties: str = "", flag: int = 0) -> bytes:
    """One message of a batch. The body of a batch is nothing but these, one after the other."""
    tail = properties.encode()
    if len(tail) > 0x7FFF:
        raise ArgumentError("properties", f"{len(tail)} bytes", "all properties together may have 32767 bytes")
    size = len(body)
    head = _HEAD.pack(_HEAD.size + size + 2 + len(tail), 0, 0, flag, size)
    return b"".join((head, body, _SHORT.pack(len(tail)), tail))


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    """The body of a batch.

    >>> decode_batch(encode_batch([BatchEntry(b"a"), BatchEntry(b"b", "KEYS\\x01k\\x02")]))[1].properties
    'KEYS\\x01k\\x02'
    """
    return b"".join([encode_entry(entry.body, entry.properties, entry.flag) for entry in entries])


# Where one message of a batch is: its start, the end of its body (where the size of its properties stands), its end;
# and its flag.
BatchPart = tuple[int, int, int, int]


def split_batch(data: bytes) -> list[BatchPart]:
    """Where the messages of a batch are. What does not fit together is a ProtocolError that names the position."""
    parts: list[BatchPart] = []
    head, short = _HEAD.unpack_from, _SHORT.unpack_from
    at, end = 0, len(data)
    while at < end:
        if end - at < _HEAD.size + 2:
            raise ProtocolError(f"a batch of {end} bytes is cut off at {at}")
        size, _, _, flag, body_size = head(data, at)
        tail = at + BODY_AT + body_size
        if body_size < 0 or tail + 2 > end:
            raise ProtocolError(f"a message of {size} bytes at {at} of a batch of {end} has a body of {body_size}")
        (tail_size,) = short(data, tail)
        if tail_size < 0 or tail + 2 + tail_size != at + size or at + size > end:
            raise ProtocolError(f"a message of {size} bytes at {at} of a batch of {end} has properties of {tail_size}")
        parts.append((at, tail, at + size, flag))
        at += size
    return parts


def decode_batch(data: bytes) -> list[BatchEntry]:
    """Read the body of a batch. What does not fit together is a ProtocolError that names the position."""
    return [
        BatchEntry(data[start + BODY_AT : tail], data[tail + 2 : end].decode(errors="replace"), flag)
        for start, tail, end, flag in split_batch(data)
    ]
