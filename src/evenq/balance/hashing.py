"""Java's hashes: ``hashCode`` of simple values, and the MD5 ring hash of ``CONSISTENT_HASH``."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5
from sys import byteorder

from evenq.errors import ArgumentError

__all__ = ["Long", "java_hash", "ring_hash"]

_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"


class Long(int):
    """An integer that hashes as Java's ``Long`` whatever its size; the two differ for negative numbers.

    >>> java_hash(-2), java_hash(Long(-2))
    (-2, 1)
    """

    __slots__ = ()


def java_hash(value: object) -> int:
    """Java's ``hashCode`` of a string, a boolean or an integer, as the signed 32-bit number that Java has.

    An integer is an ``Integer`` where it fits into 32 bits, else a ``Long``; :class:`Long` asks for the latter.

    >>> java_hash("order-1"), java_hash("polygenelubricants"), java_hash(True), java_hash(1 << 32)
    (-1207111310, -2147483648, 1231, 1)
    """
    match value:
        case str():
            return _string_hash(value)
        case bool():
            return 1231 if value else 1237
        case int() if _fits(value, 32) and not isinstance(value, Long):
            return value
        case int() if _fits(value, 64):
            return _signed(value ^ (value >> 32))
        case int():
            raise ArgumentError("value", value, "an integer must fit into 64 bits; give str(value) to hash its digits")
        case _:
            raise ArgumentError("value", value, "Java's hash is known for str, int and bool; give one of these")


def ring_hash(key: str) -> int:
    """The place of ``key`` on the ring: the first four bytes of its MD5, as an unsigned number.

    >>> ring_hash("member-0")
    1912586698
    """
    # "replace" writes "?" for half a surrogate pair, as Java does.
    return int.from_bytes(md5(key.encode(errors="replace"), usedforsecurity=False).digest()[:4], "big")


def _string_hash(text: str) -> int:
    units: Iterable[int] = (
        text.encode() if text.isascii() else memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")
    )
    code = 0
    for unit in units:
        code = (31 * code + unit) & 0xFFFF_FFFF
    return _signed(code)


def _fits(number: int, bits: int) -> bool:
    return -1 << bits - 1 <= number < 1 << bits - 1


def _signed(number: int) -> int:
    """The low 32 bits as Java's ``int``."""
    return ((number & 0xFFFF_FFFF) ^ 0x8000_0000) - 0x8000_0000
