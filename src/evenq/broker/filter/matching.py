"""Filters on properties: whether an expression is one, and reading a queue through it.

Each message is looked at in the log before it goes out.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Generator

from evenq.broker.filter.sql import Filter, Filters
from evenq.broker.limits import Limits
from evenq.broker.server import Postponed, Refusal
from evenq.broker.store.store import Read, ReadStatus, Store
from evenq.errors import ArgumentError
from evenq.protocol.codes import ResponseCode
from evenq.protocol.filters import SQL92, TAG
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import decode_properties
from evenq.protocol.records import MAGIC_V1, split_records

__all__ = ["SqlFilters", "is_sql", "properties_of", "read_matching"]

# A filter that lets nothing through may look at so many messages of one read and so many bytes, so many at a time: the
# others of the broker wait meanwhile.
_MOST = 2048
_MOST_BYTES = 16 * 1024 * 1024
_PIECE = 128
_PIECE_BYTES = 1024 * 1024

_HEAD = struct.Struct(">iI28xi")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_FIXED = 88


def is_sql(expression_type: str | None) -> bool:
    """Whether a subscription is SQL92; if not, it is made of tags. There is no third kind."""
    if expression_type == SQL92:
        return True
    if expression_type and expression_type != TAG:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {expression_type}"
        )
    return False


class SqlFilters:
    """The SQL92 filters of a broker."""

    def __init__(self, limits: Limits) -> None:
        self._max_chars = limits.max_sql_chars
        self._filters = Filters(limits.max_sql_cache_bytes)

    def get(self, expression: str) -> Filter:
        """The filter of an expression, or the refusal that says what is wrong with it. The request whose filter is long
        and new is handled when that is compiled."""
        self.check(expression)
        try:
            found = self._filters.get(expression)
        except ArgumentError as error:
            raise _unreadable(error) from None
        if found is None:
            raise Postponed(self._make(expression))
        return found

    def _make(self, expression: str) -> Generator[None, None, None]:
        try:
            yield from self._filters.make(expression)
        except ArgumentError as error:
            raise _unreadable(error) from None

    def check(self, expression: str) -> None:
        """Refuse an expression that is too long, be it SQL or tags."""
        if len(expression) > self._max_chars:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the expression of {len(expression)} characters is over the limit of {self._max_chars}: shorten it",
            )


def _unreadable(error: ArgumentError) -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))


def read_matching(
    store: Store,
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    max_bytes: int,
    wanted: Filter,
    max_visits: int,
    until: float = math.inf,
    now: Callable[[], float] = time.monotonic,
) -> Read:
    """What :meth:`Store.read` gives, of the messages alone whose properties are ``wanted``.

    It stops after so many visits of the filter's nodes, and when it is ``until``, but looks at one message at least.
    """
    kept: list[bytes] = []
    size, at, seen = 0, offset, 0
    most = max(1, min(_MOST, max_visits // wanted.size))
    matches = wanted.matches
    piece = first = store.read(topic, queue_id, at, _PIECE, _PIECE_BYTES)
    while piece.status is ReadStatus.FOUND:
        starts = split_records(piece.body)
        for start, end in zip(starts, [*starts[1:], len(piece.body)], strict=True):
            if at - offset == most or (at - offset and now() > until):
                return _answer(piece, at, kept)
            record = piece.body[start:end]
            if matches(properties_of(record)):
                if kept and (len(kept) == count or size + len(record) > max_bytes):
                    return _answer(piece, at, kept)
                kept.append(record)
                size += len(record)
            at += 1
        seen += len(piece.body)
        if len(kept) == count or at - offset >= most or seen >= _MOST_BYTES:
            break
        piece = store.read(topic, queue_id, at, _PIECE, _PIECE_BYTES)
    return first if first.status is not ReadStatus.FOUND else _answer(piece, at, kept)


def _answer(last: Read, next_offset: int, kept: list[bytes]) -> Read:
    status = ReadStatus.FOUND if kept else ReadStatus.NO_MATCH
    return Read(status, next_offset, last.min_offset, last.max_offset, b"".join(kept), len(kept))


def properties_of(record: bytes) -> dict[str, str]:
    """The properties of a whole record, and nothing else of it."""
    _, magic, sys_flag = _HEAD.unpack_from(record)
    body_at = _FIXED
    if sys_flag & SysFlag.BORN_HOST_V6:
        body_at += 12
    if sys_flag & SysFlag.STORE_HOST_V6:
        body_at += 12
    topic_at = body_at + _INT.unpack_from(record, body_at - 4)[0]
    if magic == MAGIC_V1:
        at = topic_at + 1 + record[topic_at] + 2
    else:
        at = topic_at + 2 + _SHORT.unpack_from(record, topic_at)[0] + 2
    return decode_properties(record[at:].decode(errors="replace"))
