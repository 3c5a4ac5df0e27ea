"""Sending: messages come in, one by one or in batches.

Behaviour
    A topic that does not exist is created after the topic that the sender names as its model (``TBW102``). The
    answer leaves when the message is with the system (asynchronous flush) or on the disk (synchronous flush).
    Delayed and timed messages go where they wait (:mod:`evenq.broker.intake`), half messages where nobody consumes
    them (:mod:`evenq.broker.transactions`), and what was tried too often to a group's dead letters.

Codes
    SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE

Not implemented
    Messages of a batch are stored at once, whatever their properties: clients do not put others into a batch.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenq.broker.handlers.recalls import recall_handle
from evenq.broker.intake import POSTPONING
from evenq.broker.retries import RETRY_PREFIX
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.store.store import Incoming, Stored
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.bodies import TopicConfig
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.flags import Perm
from evenq.protocol.ids import pack_host
from evenq.protocol.names import topic_error
from evenq.protocol.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["Sending"]

REGION = "DefaultRegion"
_TRACE = {"MSG_REGION": REGION, "TRACE_ON": "true"}

# A message with one of these properties may not go to its queue, or not yet.
_SPECIAL = POSTPONING | {Property.HALF}

_WRITE = int(Perm.WRITE)

# What a record holds of properties, and the longest unique id that a broker gives.
_MAX_PROPERTIES = 0x7FFF
_UNIQUE_ID = f"{Property.UNIQUE_KEY}\x01{'0' * 56}\x02"

_END = "\x02"


class Sending:
    """The handlers of sending."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._id_prefix = pack_host(broker.address).hex().upper()
        # what the broker adds to the properties of each message, as the Java broker does
        self._added = encode_properties(_TRACE | {"CLUSTER": broker.settings.cluster})
        self._most_added = len(self._added.encode()) + len(_UNIQUE_ID)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self._send_v1,
            RequestCode.SEND_MESSAGE_V2: self._send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self._send_v2,
        }

    def _send_v1(self, request: Command, connection: Connection) -> Command | None:
        return self._send(request, connection, headers.SendRequest.from_ext(request.ext))

    def _send_v2(self, request: Command, connection: Connection) -> Command | None:
        return self._send(request, connection, headers.SendRequestV2.from_ext(request.ext))

    def _send(self, request: Command, connection: Connection, header: headers.SendRequest) -> Command | None:
        topic = self._broker.topics.get(header.topic) or self._create(header)
        self._check(request, header, topic)
        queue_id = header.queue_id if header.queue_id >= 0 else random.randrange(topic.write_queue_nums)
        if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._send_batch(request, connection, header, queue_id)
        text = header.properties or ""
        properties = decode_properties(text)
        unique_key = properties.get(Property.UNIQUE_KEY)
        if unique_key is None:
            unique_key = properties[Property.UNIQUE_KEY] = self._broker.unique_ids.next()
            text = encode_properties(properties)
        elif text[-1] != _END:
            text += _END
        message = Incoming(
            header.topic,
            queue_id,
            request.body,
            text + self._added,
            properties.get(Property.TAGS),
            header.born_timestamp,
            connection.address,
            header.flag,
            header.sys_flag,
            header.reconsume_times or 0,
        )
        handle = {}
        if _SPECIAL.isdisjoint(properties) and not header.topic.startswith(RETRY_PREFIX):
            stored = self._broker.store.append(message)
        else:
            stored = self._put(message, header)
            handle = self._recall_handle(stored)
        ext = {
            "msgId": self._message_id(stored),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": unique_key,
            **_TRACE,
            **handle,
        }
        return self._broker.answer_when_durable(request.reply(ext=ext), connection)

    def _put(self, message: Incoming, header: headers.SendRequest) -> Stored:
        """Store a message that may not go to its queue, or not yet."""
        properties = decode_properties(message.properties)
        if message.topic.startswith(RETRY_PREFIX):
            message, properties = self._broker.retries.redirected(message, properties, header.max_reconsume_times)
        # an old client sends what it consumed of a transaction to be tried again: that is no half message
        tried = message.reconsume_times > 0 and Property.DELAY in properties
        if properties.get(Property.HALF, "").lower() == "true" and not tried:
            return self._broker.transactions.prepare(message, properties)
        return self._broker.intake.put(message, properties)

    def _recall_handle(self, stored: Stored) -> dict[str, str]:
        """By what the sender can take a message back, if it is a timed one."""
        message = self._broker.store.message_at(stored.log_offset)
        handle = message and recall_handle(message, self._broker.settings.name)
        return {"recallHandle": handle.encode()} if handle else {}

    def _send_batch(
        self, request: Command, connection: Connection, header: headers.SendRequest, queue_id: int
    ) -> Command | None:
        if header.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
        if not request.body:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        stored = self._broker.store.append_batch(
            Incoming(
                header.topic,
                queue_id,
                request.body,
                "",
                None,
                header.born_timestamp,
                connection.address,
                0,
                header.sys_flag,
                header.reconsume_times or 0,
            )
        )
        ext = {
            "msgId": self._message_ids(stored.log_offsets),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            **_TRACE,
        }
        return self._broker.answer_when_durable(request.reply(ext=ext), connection)

    def _message_ids(self, log_offsets: Sequence[int]) -> str:
        """The ids of many messages, by commas."""
        offsets = struct.pack(f">{len(log_offsets)}q", *log_offsets).hex(",", 8).upper()
        return self._id_prefix + offsets.replace(",", f",{self._id_prefix}")

    def _message_id(self, stored: Stored) -> str:
        return f"{self._id_prefix}{stored.log_offset:016X}"

    def _create(self, header: headers.SendRequest) -> TopicConfig:
        error = topic_error(header.topic, self._broker.settings.max_topic)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        topic = self._broker.topics.create_for_send(header.topic, header.default_topic, header.default_topic_queue_nums)
        if topic is None and header.topic.startswith(RETRY_PREFIX):
            return self._broker.topics.create_for_group(header.topic, 1)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! This broker does not create it by itself",
            )
        return topic

    def _check(self, request: Command, header: headers.SendRequest, topic: TopicConfig) -> None:
        if not self._broker.topics.may_send(header.topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
        if not topic.perm & _WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] sending message is forbidden")
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        if header.queue_id >= queues:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal: topic {header.topic} has queues 0 to {queues - 1}",
            )
        limit = self._broker.settings.max_message
        if len(request.body) > limit:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the message body has {len(request.body)} bytes, over the limit {limit}"
            )
        room = _MAX_PROPERTIES - self._most_added
        text = header.properties or ""
        # a character has 4 bytes at most: few messages need to be looked at closely
        if 4 * len(text) > room and len(text.encode()) > room:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the properties have {len(text.encode())} bytes, over the limit {room}"
            )
