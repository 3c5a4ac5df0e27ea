"""Many messages in one send (320), and in one record where a broker stores batches whole.

Each is ``total size:4  magic:4 (0)  crc:4 (0)  flag:4  body size:4  body  properties size:2  properties``; topic, queue
and time are those of the send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from evenq.errors import ArgumentError, ProtocolError

__all__ = ["BatchEntry", "decode_batch", "encode_batch", "encode_entry"]

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


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


def decode_batch(data: bytes) -> list[BatchEntry]:
    """Read the body of a batch. What does not fit together is a ProtocolError that names the position."""
    entries: list[BatchEntry] = []
    at, end = 0, len(data)
    while at < end:
        if end - at < _HEAD.size + 2:
            raise ProtocolError(f"a batch of {end} bytes is cut off at {at}")
        size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
        body_at = at + _HEAD.size
        tail_at = body_at + body_size + 2
        if body_size < 0 or tail_at > end:
            raise ProtocolError(f"a message of {size} bytes at {at} of a batch of {end} has a body of {body_size}")
        (tail_size,) = _SHORT.unpack_from(data, tail_at - 2)
        if tail_size < 0 or tail_at + tail_size != at + size or at + size > end:
            raise ProtocolError(f"a message of {size} bytes at {at} of a batch of {end} has properties of {tail_size}")
        text = data[tail_at : tail_at + tail_size].decode(errors="replace")
        entries.append(BatchEntry(data[body_at : tail_at - 2], text, flag))
        at += size
    return entries
