"""Replies: the second half of request and reply, on its way back to the asker.

Behaviour
    Who asked stands in the reply by its client id. The reply is pushed to the connection on which that client is a
    producer, and stored in the cluster's reply topic as well; its sender is told whether the asker took it. A reply
    for a client that is not connected is refused and not stored.

Codes
    SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2; PUSH_REPLY_MESSAGE_TO_CLIENT is what the asker gets

Not implemented
    Askers that are connected to another broker of the cluster only: as with the Java broker they get nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.admission import Admitted
from evenq.broker.later import DeferredReplies
from evenq.broker.server import Connection, Handler, Refusal
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.ids import message_id, pack_host
from evenq.protocol.properties import encode_properties

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["ReplyHandlers"]

_SECONDS = 10.0
_PUSHED = "PUSH_REPLY_TIME"


class ReplyHandlers:
    """The handlers of replies."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._deferred = DeferredReplies()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self._reply_v1,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply_v2,
        }

    def _reply_v1(self, request: Command, connection: Connection) -> None:
        self._reply(request, connection, headers.SendRequest.from_ext(request.ext))

    def _reply_v2(self, request: Command, connection: Connection) -> None:
        self._reply(request, connection, headers.SendRequestV2.from_ext(request.ext))

    def _reply(self, request: Command, connection: Connection, header: headers.SendRequest) -> None:
        reply = self._broker.admission.admit_reply(header, request.body, connection.address)
        asker = reply.properties.get(Property.REPLY_TO)
        if asker is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"reply message properties[{Property.REPLY_TO}] is null")
        producer = self._broker.producers.find(asker)
        if producer is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{asker}> not found: it is not here"
            )
        answer = self._store(request, reply)
        discarded: list[bool] = []
        self._broker.store.on_discard(lambda: discarded.append(True))
        push = self._push(header, reply)

        async def result() -> Command | None:
            # this begins when the turn is over
            if discarded:
                raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker cannot store anything now")
            await self._push_to(producer, push, asker)
            return self._broker.answer_when_synced(answer, connection)

        self._deferred.answer(request, connection, result())

    def _store(self, request: Command, reply: Admitted) -> Command:
        """Store a reply like any message; the answer to its sender, should the asker take it."""
        stored = self._broker.store.append(reply.message)
        answer = headers.SendResponse(
            msg_id=message_id(pack_host(self._broker.address), stored.log_offset),
            queue_id=reply.message.queue_id,
            queue_offset=stored.queue_offset,
        )
        return request.reply(ext=answer.to_ext())

    def _push(self, header: headers.SendRequest, reply: Admitted) -> Command:
        now = str(self._broker.now_ms())
        push = headers.PushReply(
            topic=header.topic,
            queue_id=header.queue_id,
            producer_group=header.producer_group,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            sys_flag=reply.message.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties({**reply.properties, _PUSHED: now}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=reply.message.born_host,
            store_host=self._broker.address,
            store_timestamp=int(now),
        )
        return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext=push.to_ext(), body=reply.message.body)

    async def _push_to(self, producer: Connection, push: Command, asker: str) -> None:
        taken = await producer.ask(push, _SECONDS)
        if taken.code != ResponseCode.SUCCESS:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"push reply message to {asker} fail: {taken.remark}")
