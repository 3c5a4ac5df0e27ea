"""Messages on their way out: checked, given an id, compressed, and put into requests."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from evenq.client.net.remote import refusal
from evenq.client.produce.receipts import BatchReceipts
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue, Property, SendResult, SendStatus
from evenq.protocol.batch import BODY_AT, encode_entry
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.compression import Compression, compress
from evenq.protocol.headers import SendRequestV2, SendResponse
from evenq.protocol.ids import UniqueIds
from evenq.protocol.namedbatch import ID_AFTER, ID_BEFORE, id_property_size, named_batch
from evenq.protocol.names import may_send, topic_error
from evenq.protocol.properties import encode_properties

__all__ = ["OutgoingBatch", "OutgoingMessage", "Packer", "Parcel", "SendRequests", "check_topic", "unique_ids"]

R = TypeVar("R")

# Answers that mean: stored, if with less safety than was asked for.
_STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}

# What a broker takes: it writes the size of the properties in two bytes.
_PROPERTIES_LIMIT = 0x7FFF
# Queues whose fixed fields are kept; only a producer of very many topics uses more.
_QUEUES_KEPT = 4096

_WIRE = dict(zip(SendRequestV2.__struct_fields__, SendRequestV2.__struct_encode_fields__, strict=True))
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES = (_WIRE[name] for name in ("sys_flag", "born_timestamp", "flag", "properties"))

_own = attrgetter("properties")


def _wire_text(message: Message) -> str:
    """What ``wire_properties`` gives, as it goes on the wire."""
    if message.properties or message.delay_level or message.deliver_at is not None:
        return encode_properties(message.wire_properties())
    text = ""
    if message.tags:
        text = f"{Property.TAGS}\x01{message.tags}\x02"
    if message.keys:
        text += f"{Property.KEYS}\x01{' '.join(message.keys)}\x02"
    if message.sharding_key is not None:
        text += f"{Property.SHARDING_KEY}\x01{message.sharding_key}\x02"
    return text


def _check_properties(size: int) -> None:
    if size > _PROPERTIES_LIMIT:
        raise ArgumentError(
            "properties", f"{size} bytes", f"all properties together may have {_PROPERTIES_LIMIT} bytes"
        )


def check_topic(topic: str) -> None:
    """Refuse a topic that no broker would take, as the Java client does."""
    error = topic_error(topic)
    if error is not None:
        raise ArgumentError("topic", topic, error)
    if not may_send(topic):
        raise ArgumentError("topic", topic, "it belongs to the broker itself: send to another one")


class Parcel(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """What one request carries; the same for every try, so that all tries have one id."""

    topic: str
    body: bytes
    properties: str
    sys_flag: int = 0
    flag: int = 0
    code: int = int(RequestCode.SEND_MESSAGE_V2)

    def receipt(self, status: SendStatus, queue: MessageQueue, stored: SendResponse) -> R:
        raise NotImplementedError

    def read(self, address: str, queue: MessageQueue, answer: Command) -> R:
        """The receipt in a broker's answer; a refusal is raised."""
        status = _STATUS.get(answer.code)
        if status is None:
            raise refusal(address, self.code, answer)
        stored = SendResponse.from_ext(answer.ext)
        if stored.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker, stored.queue_id)
        return self.receipt(status, queue, stored)


class OutgoingMessage(Parcel[SendResult], frozen=True, kw_only=True, gc=False):
    message: Message
    unique_key: str

    def receipt(self, status: SendStatus, queue: MessageQueue, stored: SendResponse) -> SendResult:
        return SendResult(
            status=status,
            queue=queue,
            offset=stored.queue_offset,
            msg_id=self.unique_key,
            offset_msg_id=stored.msg_id,
            transaction_id=stored.transaction_id,
            recall_handle=stored.recall_handle,
        )


class OutgoingBatch(Parcel[BatchReceipts], frozen=True, kw_only=True, gc=False):
    messages: Sequence[Message]
    unique_keys: Sequence[str]

    def receipt(self, status: SendStatus, queue: MessageQueue, stored: SendResponse) -> BatchReceipts:
        return BatchReceipts(status, queue, stored.queue_offset, self.unique_keys, stored.msg_id)


class Packer:
    """Makes parcels of messages. What no broker would take is refused here."""

    def __init__(
        self,
        ids: UniqueIds,
        *,
        compression: Compression,
        compress_over: int,
        max_message_size: int,
        namespace: str = "",
    ) -> None:
        self._ids = ids
        self._compression: Compression = compression
        self.compress_over = compress_over
        self.limit = max_message_size
        self._more = {Property.INSTANCE: namespace} if namespace else {}
        self._common = encode_properties(self._more)
        self._common_wire = self._common.encode()
        self._id_size = id_property_size(ids.id_size)
        # of a message without body and properties in a batch
        self._entry_size = BODY_AT + 2 + self._id_size

    def message(
        self,
        message: Message,
        more: Mapping[str, str] | None = None,
        *,
        sys_flag: int = 0,
        code: int = int(RequestCode.SEND_MESSAGE_V2),
    ) -> OutgoingMessage:
        """One message, with ``more`` properties than its own."""
        unique_key, properties = self._named(message, more, self._ids.next())
        body = message.body
        if len(body) > self.compress_over:
            body, how = compress(body, self._compression)
            sys_flag |= how
        return OutgoingMessage(
            message.topic,
            body,
            properties,
            sys_flag,
            message.flag,
            code,
            message=message,
            unique_key=unique_key,
        )

    def entry(self, message: Message) -> tuple[bytes, int]:
        """The properties of a message that is to be part of a batch, on the wire but for its id, and the bytes that it
        takes in the batch."""
        body_size, own = len(message.body), self._common_wire
        if not 0 < body_size <= self.limit:
            raise self._wrong_size(message)
        text = _wire_text(message)
        if text:
            own = (text + self._common).encode()
            _check_properties(len(own) + self._id_size)
        return own, self._entry_size + body_size + len(own)

    def no_properties(self, messages: Sequence[Message]) -> Sequence[bytes]:
        """The same of many messages that are known to have none of their own."""
        sizes = [len(message.body) for message in messages]
        if not 0 < min(sizes) <= max(sizes) <= self.limit:
            raise next(self._wrong_size(each) for each in messages if not 0 < len(each.body) <= self.limit)
        return [self._common_wire] * len(messages)

    def batch(self, messages: Sequence[Message], own: Sequence[bytes]) -> OutgoingBatch:
        """Messages of one topic with their properties, for one queue. They are not compressed: a broker takes a batch
        apart."""
        ids = self._ids.take(len(messages))
        keys: Sequence[str] = ids
        if any(Property.UNIQUE_KEY in properties for properties in filter(None, map(_own, messages))):
            keys = [each.properties.get(Property.UNIQUE_KEY, made) for each, made in zip(messages, ids, strict=True)]
            body = b"".join(map(self._entry, messages, keys))
        else:
            body = named_batch([each.body for each in messages], own, [each.flag for each in messages], ids)
        if len(body) > self.limit:
            raise ArgumentError(
                "messages",
                f"{len(messages)} messages of {len(body)} bytes",
                f"at most {self.limit} bytes fit in a batch: send fewer at a time, or let split=True divide them",
            )
        return OutgoingBatch(
            messages[0].topic,
            body,
            f"{ID_BEFORE}{self._ids.next()}{ID_AFTER}{self._common}",
            code=int(RequestCode.SEND_BATCH_MESSAGE),
            messages=messages,
            unique_keys=keys,
        )

    def _entry(self, message: Message, unique_key: str) -> bytes:
        return encode_entry(message.body, self._named(message, None, unique_key)[1], message.flag)

    def _named(self, message: Message, more: Mapping[str, str] | None, unique_key: str) -> tuple[str, str]:
        """Check a message, and give its id and its properties on the wire; ``unique_key`` is for one without."""
        if not 0 < len(message.body) <= self.limit:
            raise self._wrong_size(message)
        if not more and Property.UNIQUE_KEY not in message.properties:
            text = f"{_wire_text(message)}{self._common}{ID_BEFORE}{unique_key}{ID_AFTER}"
        else:
            properties = message.wire_properties() | self._more
            properties.update(more or {})
            unique_key = properties.setdefault(Property.UNIQUE_KEY, unique_key)
            text = encode_properties(properties)
        if len(text) > _PROPERTIES_LIMIT // 4:
            _check_properties(len(text.encode()))
        return unique_key, text

    def _wrong_size(self, message: Message) -> ArgumentError:
        size = len(message.body)
        remedy = (
            f"at most {self.limit} bytes fit: raise max_message_size here and on the broker"
            if size
            else "give at least one byte: a broker refuses an empty message"
        )
        return ArgumentError("body", f"{size} bytes", remedy)


class SendRequests:
    """Makes the requests of one producer. Most of their fields depend on the queue only, and are kept."""

    def __init__(self, group: str, topic_queues: int, wire_name: Callable[[str], str]) -> None:
        self._group = group
        self._topic_queues = topic_queues
        self._wire_name = wire_name
        self._fixed = lru_cache(_QUEUES_KEPT)(self._fields)

    def make(self, queue: MessageQueue, parcel: Parcel[R]) -> Command:
        fields = self._fixed(queue, parcel.code).copy()
        fields[_SYS_FLAG] = str(parcel.sys_flag)
        fields[_BORN] = str(time.time_ns() // 1_000_000)
        fields[_FLAG] = str(parcel.flag)
        fields[_PROPERTIES] = parcel.properties
        return Command(parcel.code, ext=fields, body=parcel.body)

    def _fields(self, queue: MessageQueue, code: int) -> dict[str, str]:
        return SendRequestV2(
            producer_group=self._group,
            topic=self._wire_name(queue.topic),
            default_topic_queue_nums=self._topic_queues,
            queue_id=queue.queue_id,
            born_timestamp=0,
            batch=code == RequestCode.SEND_BATCH_MESSAGE,
            broker_name=queue.broker,
        ).to_ext()


def unique_ids(client_id: str) -> UniqueIds:
    """The ids that a client gives: they begin with its address and its process."""
    address = ip_address(client_id.partition("@")[0].partition("%")[0]).packed
    return UniqueIds(address=address, pid=os.getpid(), salt=_random.getrandbits(32), clock=time.time)


# spreads ids; guards nothing
_random = random.SystemRandom()
