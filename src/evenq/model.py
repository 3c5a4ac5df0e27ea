"""The values that every part of evenq may know: messages, queues, receipts. Frozen, no I/O."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from numbers import Integral
from sys import byteorder

import msgspec

from evenq.errors import ArgumentError

__all__ = [
    "Begin",
    "Message",
    "MessageModel",
    "MessageQueue",
    "Property",
    "SendResult",
    "SendStatus",
    "TransactionResult",
    "TransactionState",
    "from_millis",
    "java_order",
    "java_string_hash",
]


def java_order(text: str) -> str:
    """The sort key that puts strings in Java's order: by UTF-16 unit, not by code point.

    The two orders differ only where a character beyond U+FFFF meets one in U+E000..U+FFFF; every other
    string is its own key, so the usual case costs one comparison.

    >>> sorted(["\\uffee", "\\U0001f680"], key=java_order) == ["\\U0001f680", "\\uffee"]
    True
    """
    if text.isascii() or max(text) < "\U00010000":
        return text
    return "".join(map(chr, _utf16_units(text)))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLIS = -62_135_596_800_000
_LAST_MILLIS = 253_402_300_799_999


def from_millis(milliseconds: int) -> datetime:
    """A time of RocketMQ as a datetime in UTC. One beyond the years 1 to 9999 is damage; the nearest end stands for it.

    >>> from_millis(1_700_000_000_123).isoformat(), from_millis(2**63 - 1).year, from_millis(-(2**63)).year
    ('2023-11-14T22:13:20.123000+00:00', 9999, 1)
    """
    return _EPOCH + timedelta(milliseconds=min(max(milliseconds, _FIRST_MILLIS), _LAST_MILLIS))


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 units, as a signed 32-bit number.

    >>> java_string_hash("TagA"), java_string_hash("polygenelubricants")
    (2598919, -2147483648)
    """
    value = 0
    for unit in text.encode() if text.isascii() else _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _utf16_units(text: str) -> array[int]:
    return array("H", text.encode(f"utf-16-{'le' if byteorder == 'little' else 'be'}", "surrogatepass"))


class MessageQueue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One queue of a topic on one broker. Ordered as Java orders it: topic, broker, queue id.

    >>> sorted([MessageQueue("t", "b", 10), MessageQueue("t", "b", 9), MessageQueue("t", "a", 11)])[0].broker
    'a'
    >>> print(MessageQueue("orders", "broker-a", 3))
    MessageQueue [topic=orders, brokerName=broker-a, queueId=3]
    """

    topic: str
    broker: str
    queue_id: int

    @property
    def sort_key(self) -> tuple[str, str, int]:
        return (java_order(self.topic), java_order(self.broker), self.queue_id)

    def __lt__(self, other: MessageQueue) -> bool:
        return self.sort_key < other.sort_key

    def __le__(self, other: MessageQueue) -> bool:
        return self.sort_key <= other.sort_key

    def __gt__(self, other: MessageQueue) -> bool:
        return self.sort_key > other.sort_key

    def __ge__(self, other: MessageQueue) -> bool:
        return self.sort_key >= other.sort_key

    def __str__(self) -> str:
        # Java's toString, to the letter: CONSISTENT_HASH places queues on its ring by it.
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker}, queueId={self.queue_id}]"


class MessageModel(Enum):
    """How the members of a group share a topic."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class Begin(Enum):
    """Where a group without a stored offset begins, by its name on the wire."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SendStatus(IntEnum):
    """What the broker says of a stored message; anything but ``SEND_OK`` is stored, with less safety."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class TransactionState(IntEnum):
    """What became of the local part of a transaction, by its bits on the wire; at ``UNKNOWN`` the broker asks later."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


class Property:
    """The property names that RocketMQ reserves for itself and that evenq uses."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    UNIQUE_KEY = "UNIQ_KEY"
    WAIT = "WAIT"
    DELAY = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QUEUE_ID = "REAL_QID"
    ORIGIN_ID = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIMES = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    SHARDING_KEY = "__SHARDINGKEY"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    INSTANCE = "INSTANCE_ID"
    HALF = "TRAN_MSG"
    PRODUCER_GROUP = "PGROUP"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO = "REPLY_TO_CLIENT"
    TTL = "TTL"
    TYPE = "MSG_TYPE"
    CLUSTER = "CLUSTER"


# Characters that separate properties on the wire, where text with one of them would be read as further properties, and
# surrogates, which UTF-8 cannot encode.
_NOT_IN_PROPERTIES = re.compile("[\x01\x02\ud800-\udfff]")


def _check_text(argument: str, text: object) -> None:
    """Refuse what cannot be part of a property. Printable text, which is nearly all, needs one look."""
    if not isinstance(text, str):
        raise ArgumentError(argument, text, f"give a string, not {type(text).__name__}")
    if not text.isprintable() and _NOT_IN_PROPERTIES.search(text):
        raise ArgumentError(argument, text, "it may not hold U+0001, U+0002 or surrogates")


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to send.

    >>> Message("orders", b"...", tags="paid", keys=["o-1"]).keys
    ('o-1',)

    ``properties`` are the user's own. ``tags``, ``keys``, ``sharding_key``, ``delay_level`` and ``deliver_at``
    travel as properties too and have fields here so that nobody needs to know their wire names.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    sharding_key: str | None = None
    delay_level: int = 0
    deliver_at: datetime | None = None
    flag: int = 0

    def __post_init__(self) -> None:
        if not self.topic:
            raise ArgumentError("topic", self.topic, "give the name of a topic")
        if not isinstance(self.body, bytes):
            if not isinstance(self.body, bytearray | memoryview):
                raise ArgumentError(
                    "body", type(self.body).__name__, "give bytes; encode text yourself, e.g. text.encode()"
                )
            msgspec.structs.force_setattr(self, "body", bytes(self.body))
        if self.tags is not None:
            _check_text("tags", self.tags)
        if self.sharding_key is not None:
            _check_text("sharding_key", self.sharding_key)
        if self.keys != ():
            keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
            for key in keys:
                _check_text("keys", key)
                if not key or " " in key:
                    raise ArgumentError(
                        "keys", key, "a key must be non-empty and without spaces: RocketMQ separates keys by them"
                    )
            msgspec.structs.force_setattr(self, "keys", keys)
        if self.delay_level != 0 or self.deliver_at is not None or self.flag != 0:
            self._check_numbers()
        if self.properties:
            for key, value in self.properties.items():
                _check_text("properties", key)
                _check_text("properties", value)
                if not key:
                    raise ArgumentError("properties", {key: value}, "a name must be non-empty")

    def _check_numbers(self) -> None:
        """The fields that most messages leave as they are."""
        if not isinstance(self.delay_level, Integral) or isinstance(self.delay_level, bool) or self.delay_level < 0:
            raise ArgumentError("delay_level", self.delay_level, "give a level from 1 (1 s) to 18 (2 h), or 0")
        if self.deliver_at is not None:
            if not isinstance(self.deliver_at, datetime) or self.deliver_at.tzinfo is None:
                raise ArgumentError(
                    "deliver_at", self.deliver_at, "give a datetime with a time zone, e.g. datetime.now(UTC)"
                )
            if self.delay_level:
                raise ArgumentError("deliver_at", str(self.deliver_at), "give delay_level or deliver_at, not both")
        if not isinstance(self.flag, Integral) or not -(1 << 31) <= self.flag < 1 << 31:
            raise ArgumentError("flag", self.flag, "give a whole number of 32 bits")

    def wire_properties(self) -> dict[str, str]:
        """All properties as they go on the wire, the user's own first."""
        wire = dict(self.properties)
        if self.tags:
            wire[Property.TAGS] = self.tags
        if self.keys:
            wire[Property.KEYS] = " ".join(self.keys)
        if self.sharding_key is not None:
            wire[Property.SHARDING_KEY] = self.sharding_key
        if self.delay_level:
            wire[Property.DELAY] = str(self.delay_level)
        if self.deliver_at is not None:
            wire[Property.TIMER_DELIVER_MS] = str(round(self.deliver_at.timestamp() * 1000))
        return wire


class SendResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The receipt for a message: where it is, and under which ids.

    ``msg_id`` is the producer's own id (the unique key), ``offset_msg_id`` the broker's (address and log offset).
    ``recall_handle`` is there for a message that waits for its ``deliver_at``: :meth:`Producer.recall` takes it back.
    """

    status: SendStatus
    queue: MessageQueue
    offset: int
    msg_id: str
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None

    @property
    def ok(self) -> bool:
        return self.status is SendStatus.SEND_OK


class TransactionResult(SendResult, frozen=True, kw_only=True, gc=False):
    """The receipt for a half message, and what its sender decided about it."""

    state: TransactionState
