"""The records of the trace, written and read: what clients tell of each message that they sent or consumed.

A message of the trace topic holds records, each ended by U+0002, their fields separated by U+0001; the first field says
what kind of record it is. Java's clients have added fields at the end over the years, so a record may have fewer of
them than there are here, or more.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, ClassVar, NamedTuple, Self

import msgspec

__all__ = [
    "FIELD",
    "KINDS",
    "OUTCOMES",
    "RECORD",
    "TRACE_TOPIC",
    "AfterRecord",
    "BeforeRecord",
    "EndRecord",
    "RecallRecord",
    "SentRecord",
    "Trace",
    "TraceRecord",
    "client_of",
    "decode_trace",
]

# Where the trace goes that nobody has given another topic.
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

FIELD, RECORD = "\x01", "\x02"

# The kinds of messages and the outcomes of calls, by Java's numbers.
KINDS = ("NORMAL", "HALF", "COMMIT", "DELAYED", "ORDERED")
OUTCOMES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")

# What Java writes where a message has no tags or keys.
_NULL = "null"
# The fields of a sent message before Java's client 4.4 added the broker's id.
_WITHOUT_OFFSET_ID = 12

# Milliseconds since 1970: what a date can be made of.
Time = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]

_ID = re.compile(r"([0-9A-Fa-f]{8}|[0-9A-Fa-f]{32})([0-9A-Fa-f]{4})[0-9A-Fa-f]{20}")


class TraceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record; its fields stand in the order of the wire.

    >>> BeforeRecord(1700, "R", "billing", "CALL", "KEY", 2, "a b").encode()
    'SubBefore\\x011700\\x01R\\x01billing\\x01CALL\\x01KEY\\x012\\x01a b\\x02'
    """

    KIND: ClassVar[str] = ""

    def encode(self) -> str:
        return FIELD.join([self.KIND, *map(_text, msgspec.structs.astuple(self))]) + RECORD

    @classmethod
    def decode(cls, fields: list[str]) -> Self:
        """Read the fields behind the kind; a ValidationError says what is wrong with them."""
        return msgspec.convert(["" if field == _NULL else field for field in fields], cls, strict=False)


class SentRecord(TraceRecord, frozen=True, array_like=True, gc=False):
    """A producer has sent a message. ``kind`` is a number of :data:`KINDS`, ``store_host`` the broker's address."""

    KIND = "Pub"

    at_ms: Time
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    body_size: int
    took_ms: int
    kind: int
    offset_msg_id: str
    ok: bool

    @classmethod
    def decode(cls, fields: list[str]) -> Self:
        if len(fields) == _WITHOUT_OFFSET_ID:
            fields = [*fields[:-1], "", fields[-1]]
        return super().decode(fields)


class BeforeRecord(TraceRecord, frozen=True, array_like=True, gc=False):
    """A consumer is about to handle a message, in the call ``request``."""

    KIND = "SubBefore"

    at_ms: Time
    region: str
    group: str
    request: str
    msg_id: str
    tries: int
    keys: str = ""


class AfterRecord(TraceRecord, frozen=True, array_like=True, gc=False):
    """That call has ended. ``outcome`` is a number of :data:`OUTCOMES`."""

    KIND = "SubAfter"

    request: str
    msg_id: str
    took_ms: int
    ok: bool
    keys: str = ""
    outcome: int | None = None
    at_ms: Time | None = None
    group: str | None = None


class EndRecord(TraceRecord, frozen=True, array_like=True, gc=False):
    """A producer has ended a transaction, by itself or because its broker asked."""

    KIND = "EndTransaction"

    at_ms: Time
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    kind: int
    transaction_id: str
    state: str
    from_check: bool


class RecallRecord(TraceRecord, frozen=True, array_like=True, gc=False):
    """A producer has taken a timed message back, or tried to."""

    KIND = "Recall"

    at_ms: Time
    region: str
    group: str
    topic: str
    msg_id: str
    ok: bool


_BY_KIND: dict[str, type[TraceRecord]] = {
    each.KIND: each for each in (SentRecord, BeforeRecord, AfterRecord, EndRecord, RecallRecord)
}


class Trace(NamedTuple):
    """The records of one message of the trace, and why others of it cannot be read."""

    records: list[TraceRecord]
    damaged: list[str]


def decode_trace(body: bytes) -> Trace:
    """Read a message of the trace topic.

    >>> found = decode_trace(b"SubAfter\\x01CALL\\x01KEY\\x0115\\x01true\\x02Pub\\x01oops\\x02")
    >>> found.records[0].took_ms, found.damaged
    (15, ["'Pub\\\\x01oops': Expected `array` of at least length 13, got 1"])
    """
    found = Trace([], [])
    for text in body.decode(errors="replace").split(RECORD):
        # as in Java, empty fields at the end are none
        kind, *fields = text.rstrip(FIELD).split(FIELD)
        if not kind and not fields:
            continue
        known = _BY_KIND.get(kind)
        try:
            if known is None:
                raise msgspec.ValidationError("its kind is not known")
            found.records.append(known.decode(fields))
        except msgspec.ValidationError as error:
            found.damaged.append(f"{text!r}: {error}")
    return found


def client_of(request: str) -> str | None:
    """Who made a call: address and process, which its id begins with. None where the id has another form.

    >>> client_of("0A00000112670000CAFE47B761F40000"), client_of("call-1")
    ('10.0.0.1@4711', None)
    """
    found = _ID.fullmatch(request)
    return f"{ip_address(bytes.fromhex(found[1]))}@{int(found[2], 16)}" if found else None


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
