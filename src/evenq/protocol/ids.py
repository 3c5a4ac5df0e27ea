"""Addresses in records, and the two ids of a message: the broker's (where it is) and the producer's (unique)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from threading import Lock
from typing import overload

from evenq.errors import ArgumentError

__all__ = ["UniqueIds", "UniqueRun", "host_text", "message_id", "pack_host", "parse_message_id", "unique_id_time"]

_PORT = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_UNIQUE_TAIL = struct.Struct(">IH")


@lru_cache(4096)
def pack_host(text: str) -> bytes:
    """An address as records hold it: 4 or 16 bytes and the port in 4 more.

    >>> pack_host("127.0.0.1:9876").hex(), len(pack_host("[2001:db8::1]:9876"))
    ('7f00000100002694', 20)
    """
    host, _, port = text.rpartition(":")
    try:
        if host[:1] == "[" and host[-1:] == "]":
            return inet_pton(AF_INET6, host[1:-1]) + _PORT.pack(int(port))
        return inet_pton(AF_INET, host) + _PORT.pack(int(port))
    except (OSError, ValueError, struct.error):
        raise ArgumentError("host", text, "give 1.2.3.4:9876 or [2001:db8::1]:9876") from None


@lru_cache(4096)
def host_text(packed: bytes) -> str:
    """The inverse of :func:`pack_host`.

    >>> host_text(bytes.fromhex("7f00000100002694")), host_text(pack_host("[2001:db8::1]:9876"))
    ('127.0.0.1:9876', '[2001:db8::1]:9876')
    """
    (port,) = _PORT.unpack_from(packed, len(packed) - 4)
    if len(packed) == 8:
        return f"{inet_ntop(AF_INET, packed[:4])}:{port}"
    return f"[{inet_ntop(AF_INET6, packed[:16])}]:{port}"


def message_id(store_host: bytes, commit_log_offset: int) -> str:
    """The broker's id of a message: its packed address and the place in its commit log.

    >>> message_id(pack_host("10.0.1.248:10911"), 26797038552950)
    '0A0001F800002A9F0000185F2BF6C776'
    """
    return (store_host + _OFFSET.pack(commit_log_offset)).hex().upper()


def parse_message_id(text: str) -> tuple[str, int]:
    """The broker's address and the place in its commit log.

    >>> parse_message_id("0A0001F800002A9F0000185F2BF6C776")
    ('10.0.1.248:10911', 26797038552950)
    """
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        packed = b""
    if len(packed) not in (16, 28):
        raise ArgumentError("msg_id", text, "a broker's message id is 32 hexadecimal digits, or 56 with IPv6")
    (offset,) = _OFFSET.unpack_from(packed, len(packed) - 8)
    return host_text(packed[:-8]), offset


# Last digits that are made together, and kept.
_BLOCK = 256


@cache
def _digits(block: int) -> list[bytes]:
    return [b"%04X" % number for number in range(block * _BLOCK, (block + 1) * _BLOCK)]


class UniqueRun(Sequence[str]):
    """Ids that were made together: they differ in their last four digits, which count on. Made when looked at.

    >>> list(UniqueRun("7F", 0xFFFE, 3)), UniqueRun("7F", 0xFFFE, 3).digits()
    (['7FFFFE', '7FFFFF', '7F0000'], [b'FFFE', b'FFFF', b'0000'])
    """

    __slots__ = ("_count", "_first", "stem")

    def __init__(self, stem: str, first: int, count: int) -> None:
        self.stem = stem
        self._first = first
        self._count = count

    @property
    def id_size(self) -> int:
        return len(self.stem) + 4

    def digits(self) -> list[bytes]:
        """The last digits of each, for the wire."""
        first = self._first & 0xFFFF
        end, found = first + self._count, []
        while first < end:
            block, start = divmod(first, _BLOCK)
            stop = min(_BLOCK, start + end - first)
            found += _digits(block & 0xFF)[start:stop]
            first += stop - start
        return found

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        numbers = range(self._first, self._first + self._count)[index]
        if isinstance(numbers, range):
            return [f"{self.stem}{number & 0xFFFF:04X}" for number in numbers]
        return f"{self.stem}{numbers & 0xFFFF:04X}"


class UniqueIds:
    """Makes ids that no other producer makes: address, process, salt, milliseconds of this month, counter.

    ``address`` is 4 or 16 bytes; ``salt`` tells apart what has the same address and process number, give it at random.
    ``clock`` is the time in seconds, e.g. ``time.time``. Safe to share between threads.

    >>> ids = UniqueIds(address=bytes([10, 0, 0, 1]), pid=4711, salt=0xCAFE, clock=lambda: 1_700_000_000.5)
    >>> ids.next(), list(ids.take(2))
    ('0A00000112670000CAFE47B761F40000', ['0A00000112670000CAFE47B761F40001', '0A00000112670000CAFE47B761F40002'])
    """

    __slots__ = ("_clock", "_lock", "_made", "_month", "_prefix", "_stem")

    def __init__(self, *, address: bytes, pid: int, salt: int, clock: Callable[[], float]) -> None:
        if len(address) not in (4, 16):
            raise ArgumentError("address", address, "give the 4 bytes of an IPv4 address or the 16 of an IPv6 address")
        self._prefix = f"{address.hex()}{pid & 0xFFFF:04x}{salt & 0xFFFFFFFF:08x}".upper()
        self._clock = clock
        self._made = 0
        self._lock = Lock()
        self._month = _month_of(clock() * 1000)
        # a millisecond, and how all ids that are made in it begin
        self._stem = (-1, "")

    @property
    def id_size(self) -> int:
        """The number of digits of every id."""
        return len(self._prefix) + 12

    def next(self) -> str:
        return f"{self._stem_now()}{self._count(1) & 0xFFFF:04X}"

    def take(self, count: int) -> UniqueRun:
        """So many ids at once, for the price of one look at the clock."""
        return UniqueRun(self._stem_now(), self._count(count), count)

    def _count(self, count: int) -> int:
        with self._lock:
            first = self._made
            self._made = first + count
        return first

    def _stem_now(self) -> str:
        now = int(self._clock() * 1000)
        made_at, stem = self._stem
        if made_at == now:
            return stem
        start, end = self._month
        if not start <= now < end:
            self._month = start, end = _month_of(now)
        stem = f"{self._prefix}{now - start:08X}"
        self._stem = (now, stem)
        return stem


def unique_id_time(unique_id: str, now_ms: int) -> int:
    """When a unique id was made, in milliseconds: it only holds the time since the first of some month, so this is
    the latest such time that is not after ``now_ms``. The maker's time zone is not known: allow for 14 hours."""
    try:
        since, _ = _UNIQUE_TAIL.unpack(bytes.fromhex(unique_id)[-6:])
    except (ValueError, struct.error):
        raise ArgumentError("unique_id", unique_id, "a unique id is 32 hexadecimal digits, or 56 with IPv6") from None
    start, _ = _month_of(now_ms)
    if start + since > now_ms:
        start, _ = _month_of(start - 1)
    return start + int(since)


def _month_of(now_ms: float) -> tuple[int, int]:
    """When the month of a time begins and ends, in milliseconds."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
