"""A checksum for records whose properties hold zero bytes.

Only the body of a record has a checksum. Of the rest zeros tell that it was not written wholly, which is how a write
ends that was cut off. Where the properties themselves hold zeros, the last of them is ``__CRC32#``, as the Java broker
writes it with ``enabledAppendPropCRC``: 20 bytes, and in these the checksum of all bytes before them.
"""

from __future__ import annotations

import re
from zlib import crc32

__all__ = ["has_seal", "is_sealed", "seal", "with_room_for_seal"]

_NAME = b"__CRC32#\x01"
_END = b"\x02"
_SIZE = len(_NAME) + 10 + len(_END)
_SEAL = re.compile(rb"(?:(?<=\x02)|\A)__CRC32#\x01[^\x02]*(?:\x02|\Z)")


def with_room_for_seal(properties: bytes) -> bytes:
    """Properties in wire form that hold a zero, with room for a checksum at their end; others only lose one that they
    brought along, which is of another record.

    >>> with_room_for_seal(b"KEYS\\x01a\\0b")
    b'KEYS\\x01a\\x00b\\x02__CRC32#\\x010000000000\\x02'
    >>> with_room_for_seal(b"__CRC32#\\x011\\x02KEYS\\x01k\\x02")
    b'KEYS\\x01k\\x02'
    """
    own = _SEAL.sub(b"", properties)
    if b"\0" not in own:
        return own
    return own + (b"" if own.endswith(_END) else _END) + _NAME + b"0" * 10 + _END


def seal(record: bytes) -> bytes:
    """A record whose properties have room for a checksum, with it."""
    whole = record[:-_SIZE]
    return whole + _seal_of(whole)


def has_seal(properties: bytes) -> bool:
    """Whether properties end with a checksum."""
    return properties[-_SIZE : -_SIZE + len(_NAME)] == _NAME and properties[-1:] == _END


def is_sealed(record: bytes) -> bool:
    """Whether a record ends with the checksum of all that is before it."""
    return record[-_SIZE:] == _seal_of(record[:-_SIZE])


def _seal_of(whole: bytes) -> bytes:
    # Java writes the last digit first
    return _NAME + f"{crc32(whole) & 0x7FFFFFFF:010d}"[::-1].encode() + _END
