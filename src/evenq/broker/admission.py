"""Admission: everything that comes from the wire and becomes a stored message passes here.

A client may write any text into the header of a send. What the broker itself notes on messages (the real queue of a
message that waits, how often a producer was asked, that a record is a half message) decides where files are made and
whose transaction ends, so it is never taken from a client:

==============================  =====================================================================================
input                           what becomes of it
==============================  =====================================================================================
topic                           its name is checked with every send; topics of the broker's own books are refused, and
                                the cluster's reply topic takes replies only
queue id                        negative: any queue that can be written; beyond the queues of the topic: refused
flags of the message            inner batches are refused; bits of transactions are cleared (in a batch refused), and
                                all others but those that say how the body is to be read
properties of the broker        removed, from ordinary messages and from each message of a batch
a timer that was delivered      ``TIMER_OUT_MS`` goes with all other ``TIMER_`` properties: a copy is due at once
numbers in properties           at most 19 digits: what is no number is refused
body, properties                refused over their limits
==============================  =====================================================================================
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from evenq.broker.server import Refusal
from evenq.broker.store.seal import with_room_for_seal
from evenq.broker.store.store import NewMessage
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.batch import BODY_AT, encode_entry, split_batch
from evenq.protocol.bodies import TopicConfig
from evenq.protocol.codes import ResponseCode
from evenq.protocol.flags import Perm, SysFlag
from evenq.protocol.names import DEAD_LETTER, PATH_LIMIT, RETRY, topic_error
from evenq.protocol.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = [
    "IMMUNITY",
    "INT32",
    "INT64",
    "REGION",
    "TIMERS",
    "Admission",
    "Admitted",
    "BrokerProperty",
    "Kind",
    "check_queue",
    "number",
    "wire_int",
]

REGION = "DefaultRegion"

INT32 = -(1 << 31), (1 << 31) - 1
INT64 = -(1 << 63), (1 << 63) - 1

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def wire_int(text: str | None, low: int, high: int) -> int | None:
    """A whole number that came as text, from the wire or from a stored message; None for anything else.

    Text of more than 19 digits is not read at all: the time that takes grows with the square of its length.

    >>> wire_int("17", 0, 100), wire_int("101", 0, 100), wire_int("1_0", 0, 100), wire_int("9" * 5000, *INT64)
    (17, None, None, None)
    """
    if text is None or not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if low <= value <= high else None


class BrokerProperty:
    """The properties that a broker notes on messages, beside :class:`evenq.model.Property`. Clients cannot set them."""

    TIMER_OUT = "TIMER_OUT_MS"
    TIMER_ENQUEUED = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUED = "TIMER_DEQUEUE_MS"
    TIMER_ROLLED = "TIMER_ROLL_TIMES"
    # names the message that a timed one takes back before it is delivered
    CANCELS = "TIMER_DEL_UNIQKEY"
    CHECKS = "TRANSACTION_CHECK_TIMES"
    FIRST_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID = "__transactionId__"
    INNER_COUNT = "INNER_NUM"
    POP_CHECKPOINT = "POP_CK"


# For how long a producer is not asked about its half message: the one property of transactions that is the client's.
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"

# In the order in which the Java broker looks for them, with the milliseconds of one unit; the last is a point in time.
TIMERS = {Property.TIMER_DELAY_SEC: 1000, Property.TIMER_DELAY_MS: 1, Property.TIMER_DELIVER_MS: 1}
_RESERVED = frozenset(
    {
        Property.REAL_TOPIC,
        Property.REAL_QUEUE_ID,
        *(value for name, value in vars(BrokerProperty).items() if name.isupper()),
    }
)
# What stands on a message that was tried before. It is the client's that sends to a retry topic itself, nobody else's.
_TRIED = frozenset({Property.RETRY_TOPIC, Property.ORIGIN_ID})
_NUMBERS = frozenset({Property.DELAY, *TIMERS, IMMUNITY})
# A message with none of these properties is stored as it came.
_LOOKED_AT = _RESERVED | _TRIED | _NUMBERS | {Property.HALF}

_NOT_IN_BATCHES = _RESERVED | _TRIED
_LOOKED_AT_IN_BATCHES = _NOT_IN_BATCHES | set(TIMERS)
_IN_BATCHES = tuple(f"{name}\x01".encode() for name in sorted(_LOOKED_AT_IN_BATCHES))
# The last four characters of the names that are looked for in a batch, and by two bytes whether one of these begins so.
_ENDINGS = frozenset(name[-5:-1] for name in _IN_BATCHES)
_BEGINS_ENDING = np.zeros(1 << 16, np.bool_)
_BEGINS_ENDING[[int.from_bytes(ending[:2], "little") for ending in _ENDINGS]] = True
# how many bytes a name and its value have at least on average where the ends of names are looked at
_FEWEST_BYTES = 16

_TRANSACTION = int(SysFlag.TRANSACTION)
_WRAPPED = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_KEPT_FLAGS = int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | SysFlag.COMPRESSION)
_WRITE = int(Perm.WRITE)

# What a record holds of properties, and the longest unique id that a broker gives.
_MAX_PROPERTIES = 0x7FFF
_UNIQUE_ID = f"{Property.UNIQUE_KEY}\x01{'0' * 56}\x02"
# Properties with a NUL are stored with a checksum of the record as a property of its own, of this size.
_CHECKSUM = 20

# Where a batch may have properties, which begin with their size, that leave no room for that.
_NEARLY_FULL = re.compile(rb"\x7f[\xea-\xff]")

# A message of a batch begins with its size; it has no fewer bytes than these.
_SIZE = struct.Struct(">i")
_LEAST_ENTRY = 22

_END = "\x02"
_SEPARATORS = re.compile("[\x01\x02]")
_RECALL_TAG = "_RECALL_TAG_"


class Kind(Enum):
    """Where a message goes."""

    NORMAL = "to its queue"
    DELAYED = "to a delay level"
    TIMED = "to the timers"
    HALF = "to the half messages, until its producer commits it"
    RETRY = "to a group that could not consume it"
    REPLY = "to who asked"


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A message that may be stored, its properties and what kind it is of. ``unique_key`` is its producer's id."""

    message: NewMessage
    properties: dict[str, str]
    unique_key: str
    kind: Kind


class Admission:
    """Turns what clients send into messages for the store, or refuses it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = broker.settings
        # what the broker adds to the properties of each message, as the Java broker does
        added = {"MSG_REGION": REGION, "TRACE_ON": "true", Property.CLUSTER: settings.cluster}
        self._added = encode_properties(added)
        self._room = _MAX_PROPERTIES - len(self._added.encode()) - len(_UNIQUE_ID)
        # so many bytes are never too many
        self._surely_room = self._room - _CHECKSUM
        # topics of no group that exist, whose names were found to be good ones that clients may send to
        self._open: set[str] = set()

    def admit_send(self, header: headers.SendRequest, body: bytes, peer: str) -> Admitted:
        """A single message of the client at ``peer``. Its topic is created where that is allowed."""
        # every message passes here: what is in order is found without a call for each check
        name, queue_id = header.topic, header.queue_id
        is_retry = False
        topic = self._broker.topics.get(name)
        if topic is None or name not in self._open or not topic.perm & _WRITE:
            topic = self._topic(header)
            is_retry = name.startswith(RETRY)
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._queue(header, topic)
        text = header.properties or ""
        if len(body) > self._broker.settings.max_message or 4 * len(text) > self._surely_room:
            self._check_size(body, text)
        properties = decode_properties(text)
        kind = Kind.NORMAL
        if is_retry or not _LOOKED_AT.isdisjoint(properties):
            kept = _without_reserved(properties, name)
            if len(kept) != len(properties):
                properties, text = kept, encode_properties(kept)
            kind = _kind(name, properties, header.reconsume_times)
        unique_key = properties.get(Property.UNIQUE_KEY)
        if unique_key is None:
            unique_key = properties[Property.UNIQUE_KEY] = self._broker.unique_ids.next()
            text = encode_properties(properties)
        elif text[-1] != _END:
            text += _END
        sys_flag = header.sys_flag
        message = NewMessage(
            name,
            queue_id,
            body,
            text + self._added,
            properties.get(Property.TAGS),
            header.born_timestamp,
            peer,
            header.flag,
            _flags(sys_flag) if sys_flag & ~_KEPT_FLAGS else sys_flag,
            header.reconsume_times if header.reconsume_times > 0 else 0,
        )
        return Admitted(message, properties, unique_key, kind)

    def admit_batch(self, header: headers.SendRequest, body: bytes, peer: str) -> NewMessage:
        """Many messages, which are the ``body`` of what is returned."""
        if header.topic.startswith(RETRY):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}: send singly"
            )
        topic = self._topic(header)
        queue_id = self._queue(header, topic)
        self._check_size(body, header.properties or "")
        if not body:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        limit = self._broker.settings.limits.max_batch_messages
        if _has_more(body, limit):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the batch has more than {limit} messages, the limit: divide it"
            )
        if header.sys_flag & _TRANSACTION:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has sysFlag {header.sys_flag}, a transaction's: send half messages singly",
            )
        if _NEARLY_FULL.search(body):
            _check_room_for_checksums(body)
        if _may_be_reserved(body):
            body = _batch_without_reserved(body, header.topic)
        return NewMessage(
            header.topic,
            queue_id,
            body,
            "",
            None,
            header.born_timestamp,
            peer,
            0,
            _flags(header.sys_flag),
            header.reconsume_times if header.reconsume_times > 0 else 0,
        )

    def admit_reply(self, header: headers.SendRequest, body: bytes, peer: str) -> Admitted:
        """The reply to a message, for the client that it names. Its topic is not created."""
        self._check_name(header.topic, reply=True)
        topic = self._broker.topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        _check_writable(topic)
        queue_id = self._queue(header, topic)
        text = header.properties or ""
        self._check_size(body, text)
        properties = _without_reserved(decode_properties(text), header.topic)
        message = NewMessage(
            header.topic,
            queue_id,
            body,
            encode_properties(properties),
            properties.get(Property.TAGS),
            header.born_timestamp,
            peer,
            header.flag,
            _flags(header.sys_flag),
            header.reconsume_times if header.reconsume_times > 0 else 0,
        )
        return Admitted(message, properties, properties.get(Property.UNIQUE_KEY, ""), Kind.REPLY)

    def admit_recall(self, topic: str, unique_key: str, due: int, producer_group: str | None, peer: str) -> Admitted:
        """The message that takes the one with this ``unique_key`` back, which is delivered at ``due``."""
        self._check_name(topic)
        for name, value in ((Property.UNIQUE_KEY, unique_key), (Property.PRODUCER_GROUP, producer_group or "")):
            if _SEPARATORS.search(value):
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"recall failed, {name} {value[:40]!r} has U+0001 or U+0002: give back the handle of the send",
                )
        properties = {
            Property.TAGS: _RECALL_TAG,
            Property.UNIQUE_KEY: unique_key,
            Property.TIMER_DELIVER_MS: str(due),
            BrokerProperty.CANCELS: f"{topic}+{unique_key}",
        }
        if producer_group:
            properties[Property.PRODUCER_GROUP] = producer_group
        text = encode_properties(properties)
        self._check_size(b"", text)
        message = NewMessage(topic, 0, b"0", text, _RECALL_TAG, self._broker.now_ms(), peer)
        return Admitted(message, properties, unique_key, Kind.TIMED)

    # -- topics

    def _topic(self, header: headers.SendRequest) -> TopicConfig:
        """The topic that a client wants to send to, created where it is missing."""
        name = header.topic
        topic = self._broker.topics.get(name)
        if topic is None or name not in self._open:
            self._check_name(name)
            topic = topic or self._create(header)
            if not name.startswith(RETRY):
                self._open.add(name)
        if not topic.perm & _WRITE:
            _check_writable(topic)
        return topic

    def _check_name(self, name: str, *, reply: bool = False) -> None:
        # one character more is enough to say what is wrong with a name of any length
        error = topic_error(name[: PATH_LIMIT + 1], PATH_LIMIT)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        if not self._broker.topics.may_send(name, reply=reply):
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{name}] is forbidden. It is the broker's own: send to another topic",
            )

    def _create(self, header: headers.SendRequest) -> TopicConfig:
        name, topics = header.topic, self._broker.topics
        error = topic_error(name, self._broker.settings.max_topic)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        is_retry = name.startswith(RETRY)
        if header.default_topic_queue_nums < 1 and not is_retry:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{name}] not exist, and defaultTopicQueueNums is {header.default_topic_queue_nums}: "
                f"give at least 1, or create the topic first",
            )
        topic = topics.create_for_send(name, header.default_topic, max(1, header.default_topic_queue_nums))
        if topic is None and is_retry:
            return topics.create_for_group(name, 1)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! This broker does not create it by itself",
            )
        return topic

    def _queue(self, header: headers.SendRequest, topic: TopicConfig) -> int:
        queue_id = header.queue_id
        if queue_id < 0:
            if topic.write_queue_nums < 1:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"the topic[{topic.topic_name}] has no queue that can be written: give it writeQueueNums",
                )
            return random.randrange(topic.write_queue_nums)
        if queue_id >= topic.write_queue_nums:
            check_queue(topic, queue_id)
        return queue_id

    # -- sizes

    def _check_size(self, body: bytes, text: str) -> None:
        limit = self._broker.settings.max_message
        if len(body) > limit:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the message body has {len(body)} bytes, over the limit {limit}"
            )
        # a character has 4 bytes at most: few messages need to be looked at closely
        if 4 * len(text) > self._surely_room:
            room = self._room - (_CHECKSUM if "\0" in text else 0)
            size = len(text.encode())
            if size > room:
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the properties have {size} bytes, over the limit {room}")


def _has_more(batch: bytes, limit: int) -> bool:
    """Whether a batch has more messages than the limit, without looking at more than that."""
    if len(batch) <= limit * _LEAST_ENTRY:
        return False
    at = 0
    for _ in range(limit):
        at += max(_LEAST_ENTRY, _SIZE.unpack_from(batch, at)[0])
        # what is cut off is refused where the batch is divided
        if at + _LEAST_ENTRY > len(batch):
            return False
    return True


def _check_room_for_checksums(batch: bytes) -> None:
    """Refuse a batch with a message whose properties hold a NUL and leave no room for the checksum that this needs."""
    for _, tail, end, _ in split_batch(batch):
        properties = batch[tail + 2 : end]
        size = len(with_room_for_seal(properties))
        if size > _MAX_PROPERTIES:
            limit = _MAX_PROPERTIES - (size - len(properties))
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties of a message of the batch have {len(properties)} bytes with a NUL, "
                f"over the limit {limit}",
            )


def check_queue(topic: TopicConfig, queue_id: int) -> None:
    """Refuse a queue that a topic does not have."""
    queues = max(topic.write_queue_nums, topic.read_queue_nums)
    if not 0 <= queue_id < queues:
        has = f"has queues 0 to {queues - 1}" if queues > 0 else "has no queues"
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal: topic {topic.topic_name} {has}",
        )


def _check_writable(topic: TopicConfig) -> None:
    if not topic.perm & _WRITE:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden")


def _flags(sys_flag: int) -> int:
    """What a message keeps of its flags: how its body is to be read."""
    if sys_flag & _WRAPPED:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message has sysFlag {sys_flag}, an inner batch's, for which no topic is made here: send a batch",
        )
    return sys_flag & _KEPT_FLAGS


def _without_reserved(properties: dict[str, str], topic: str) -> dict[str, str]:
    """The properties without those of the broker, when all numbers in them can be read."""
    removed = _RESERVED if topic.startswith((RETRY, DEAD_LETTER)) else _RESERVED | _TRIED
    if BrokerProperty.TIMER_OUT in properties:
        removed |= set(TIMERS)
    kept = {name: value for name, value in properties.items() if name not in removed}
    if _NUMBERS.isdisjoint(kept):
        return kept
    if wire_int(kept.get(IMMUNITY, "0"), 0, 1 << 31) is None:
        del kept[IMMUNITY]
    # a delay level comes before any timer
    level = number(kept, Property.DELAY) if Property.DELAY in kept else 0
    for name in TIMERS if level <= 0 else ():
        if name in kept:
            number(kept, name)
    return kept


def number(properties: Mapping[str, str], name: str) -> int:
    """The number in a property that decides when a message is delivered; a Refusal where it is none."""
    value = wire_int(properties[name], *(INT32 if name == Property.DELAY else INT64))
    if value is None:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property {name} is {properties[name][:40]!r}: it must be a whole number of at most "
            f"{'32' if name == Property.DELAY else '64'} bits",
        )
    return value


def _kind(topic: str, properties: Mapping[str, str], reconsume_times: int) -> Kind:
    if topic.startswith(RETRY):
        return Kind.RETRY
    # an old client sends what it consumed of a transaction to be tried again: that is no half message
    tried = reconsume_times > 0 and Property.DELAY in properties
    if properties.get(Property.HALF, "").lower() == "true" and not tried:
        return Kind.HALF
    if Property.DELAY in properties and number(properties, Property.DELAY) > 0:
        return Kind.DELAYED
    return Kind.TIMED if any(name in properties for name in TIMERS) else Kind.NORMAL


def _may_be_reserved(batch: bytes) -> bool:
    """Whether a batch holds the name of a reserved property, or what looks like one.

    Looking for each name takes longer than storing the batch, so the ends of all names are looked at first.
    """
    if len(batch) < BODY_AT:
        return False
    ends = np.flatnonzero(np.frombuffer(batch, np.uint8) == 1)
    # where every few bytes look like the end of a name, looking for each name is faster
    if len(ends) * _FEWEST_BYTES < len(batch):
        pairs = np.ndarray((len(batch) - 1,), "<u2", batch, 0, (1,))
        suspects = ends[_BEGINS_ENDING[pairs[ends - 4]]]
        if _ENDINGS.isdisjoint([batch[end - 4 : end] for end in suspects.tolist()]):
            return False
    return any(name in batch for name in _IN_BATCHES)


def _batch_without_reserved(batch: bytes, topic: str) -> bytes:
    """A batch without the broker's properties; the messages that have none stay as they are."""
    pieces = []
    for start, tail, end, flag in split_batch(batch):
        wire = batch[tail + 2 : end]
        properties = decode_properties(wire.decode(errors="replace"))
        if _LOOKED_AT_IN_BATCHES.isdisjoint(properties):
            pieces.append(batch[start:end])
            continue
        kept = {name: value for name, value in properties.items() if name not in _NOT_IN_BATCHES}
        timed = [name for name in TIMERS if name in kept]
        if timed and BrokerProperty.TIMER_OUT not in properties:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, a message of the batch for {topic} has {timed[0]}: send timed messages singly",
            )
        for name in timed:
            del kept[name]
        pieces.append(encode_entry(batch[start + BODY_AT : tail], encode_properties(kept), flag))
    return b"".join(pieces)
