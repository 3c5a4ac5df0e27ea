"""Sending: messages come in, one by one or in batches.

Behaviour
    A topic that does not exist is created after the topic that the sender names as its model (``TBW102``). The
    answer leaves when the message is with the system (asynchronous flush) or on the disk (synchronous flush).

Codes
    SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, CONSUMER_SEND_MSG_BACK

Not implemented
    Delayed, timed and transactional messages are refused; a message that is sent back is redelivered at once.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.store.store import Incoming, Stored
from evenq.broker.topics import dead_letter_topic, retry_topic, topic_error
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.batch import decode_batch
from evenq.protocol.bodies import TopicConfig
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.flags import Perm
from evenq.protocol.ids import pack_host
from evenq.protocol.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["Sending"]

REGION = "DefaultRegion"
_TRACE = {"MSG_REGION": REGION, "TRACE_ON": "true"}

# What a broker cannot do yet, by the property that asks for it.
_REFUSED = {
    Property.DELAY: "delayed messages",
    Property.TIMER_DELIVER_MS: "timed messages",
    Property.TIMER_DELAY_MS: "timed messages",
    Property.TIMER_DELAY_SEC: "timed messages",
    "TRAN_MSG": "transactional messages",
}

_WRITE = int(Perm.WRITE)

_END = "\x02"
_TAGS = "TAGS\x01"
_SEPARATED_TAGS = "\x02TAGS\x01"


class Sending:
    """The handlers of sending."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._id_prefix = pack_host(broker.address).hex().upper()
        # what the broker adds to the properties of each message, as the Java broker does
        self._added = encode_properties(_TRACE | {"CLUSTER": broker.settings.cluster})

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self._send_v1,
            RequestCode.SEND_MESSAGE_V2: self._send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self._send_v2,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
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
        for name in _REFUSED:
            if name in properties:
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"this broker does not support {_REFUSED[name]} ({name})")
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
        stored = self._broker.store.append(message)
        ext = {
            "msgId": self._message_id(stored),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": unique_key,
            **_TRACE,
        }
        return self._broker.answer_when_durable(request.reply(ext=ext), connection)

    def _send_batch(
        self, request: Command, connection: Connection, header: headers.SendRequest, queue_id: int
    ) -> Command | None:
        if header.topic.startswith(retry_topic("")):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
        entries = decode_batch(request.body)
        if not entries:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        stored = self._broker.store.append_all(
            [
                Incoming(
                    header.topic,
                    queue_id,
                    entry.body,
                    entry.properties,
                    _tags_of(entry.properties),
                    header.born_timestamp,
                    connection.address,
                    entry.flag,
                    header.sys_flag,
                    header.reconsume_times or 0,
                )
                for entry in entries
            ]
        )
        ext = {
            "msgId": ",".join([self._message_id(place) for place in stored]),
            "queueId": str(queue_id),
            "queueOffset": str(stored[0].queue_offset),
            **_TRACE,
        }
        return self._broker.answer_when_durable(request.reply(ext=ext), connection)

    def _message_id(self, stored: Stored) -> str:
        return f"{self._id_prefix}{stored.log_offset:016X}"

    def _create(self, header: headers.SendRequest) -> TopicConfig:
        error = topic_error(header.topic)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        topic = self._broker.topics.create_for_send(header.topic, header.default_topic, header.default_topic_queue_nums)
        if topic is None and header.topic.startswith(retry_topic("")):
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
        if len(header.properties or "") > 0x7FFF:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties have {len(header.properties or '')} characters, over the limit {0x7FFF}",
            )

    def _send_back(self, request: Command, connection: Connection) -> Command | None:
        header = headers.SendBack.from_ext(request.ext)
        settings = self._broker.group_configs.get(header.group)
        if settings is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}: create it"
            )
        if settings.retry_queue_nums <= 0:
            return request.reply()
        message = self._broker.store.message_at(header.offset)
        if message is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        limit = settings.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        if message.reconsume_times >= limit or header.delay_level < 0:
            topic, queues = dead_letter_topic(header.group), 1
        else:
            topic, queues = retry_topic(header.group), settings.retry_queue_nums
        self._broker.topics.create_for_group(topic, queues)
        properties = {Property.RETRY_TOPIC: message.topic, Property.ORIGIN_ID: message.msg_id} | message.properties
        self._broker.store.append(
            Incoming(
                topic,
                random.randrange(queues),
                message.body,
                encode_properties(properties),
                message.tags,
                message.born_timestamp,
                message.born_host,
                message.flag,
                message.sys_flag,
                message.reconsume_times + 1,
            )
        )
        return self._broker.answer_when_durable(request.reply(), connection)


def _tags_of(properties: str) -> str | None:
    """The tags in properties of the wire form, without reading all of them."""
    at = 0 if properties.startswith(_TAGS) else properties.find(_SEPARATED_TAGS) + 1
    if at == 0 and not properties.startswith(_TAGS):
        return None
    return properties[at + len(_TAGS) :].partition(_END)[0] or None
