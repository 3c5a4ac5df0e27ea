"""Relays: questions that only a member can answer are passed on to it, and its answer back.

Behaviour
    The member is found by its group and client id. It has 10 s; the asker is told where it does not answer.

Codes
    GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY, INVOKE_BROKER_TO_GET_CONSUMER_STATUS

Not implemented
    Members that are behind a proxy.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenq.broker.later import DeferredReplies
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.state.groups import Member
from evenq.errors import ArgumentError, EvenqError, RequestTimeout
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.ids import parse_message_id

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["RelayHandlers"]

_SECONDS = 10.0
_STATUS_SECONDS = 5.0


class RelayHandlers:
    """The handlers of what is passed on to members."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._deferred = DeferredReplies()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._consumer_status,
        }

    def _running_info(self, request: Command, connection: Connection) -> None:
        header = headers.RunningInfoRequest.from_ext(request.ext)
        member = self._member(header.consumer_group, header.client_id)
        self._deferred.answer(request, connection, self._relay(request, header.consumer_group, member))

    def _consume_directly(self, request: Command, connection: Connection) -> None:
        header = headers.ConsumeDirectly.from_ext(request.ext)
        member = self._member(header.consumer_group, header.client_id)
        try:
            _, log_offset = parse_message_id(header.msg_id or "")
        except ArgumentError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        record = self._broker.store.record_at(log_offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"message {header.msg_id} is not in this broker")
        topic = self._broker.topics.get(header.topic or "")
        group = self._broker.group_configs.get(header.consumer_group)
        flags = {
            "brokerName": self._broker.settings.name,
            "topicSysFlag": str(topic.topic_sys_flag if topic else 0),
            "groupSysFlag": str(group.group_sys_flag if group else 0),
        }
        request.ext |= flags
        request.body = record
        self._deferred.answer(request, connection, self._relay(request, header.consumer_group, member))

    def _consumer_status(self, request: Command, connection: Connection) -> None:
        header = headers.ConsumerStatus.from_ext(request.ext)
        group = self._broker.groups.get(header.group)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        asked = [member for member in group.members.values() if header.client_addr in (None, "", member.client_id)]
        self._deferred.answer(request, connection, self._statuses(request, header, asked))

    async def _relay(self, request: Command, group: str, member: Member[Connection]) -> Command:
        passed_on = Command(request.code, ext=request.ext, body=request.body)
        try:
            answer = await member.channel.ask(passed_on, _SECONDS)
        except RequestTimeout as error:
            remark = f"consumer <{group}> <{member.client_id}> Timeout: {error}"
            return request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        except Refusal:
            raise
        except EvenqError as error:
            remark = f"invoke consumer <{group}> <{member.client_id}> Exception: {error}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        return request.reply(answer.code, remark=answer.remark, ext=answer.ext, body=answer.body)

    async def _statuses(
        self, request: Command, header: headers.ConsumerStatus, members: list[Member[Connection]]
    ) -> Command:
        """Where each member is in the topic; one that does not answer is left out."""
        ext = headers.ConsumerStatus(topic=header.topic, group=header.group).to_ext()
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        answers = await asyncio.gather(
            *(member.channel.ask(Command(code, ext=ext), _STATUS_SECONDS) for member in members),
            return_exceptions=True,
        )
        table: dict[str, dict[MessageQueue, int]] = {}
        for member, answer in zip(members, answers, strict=True):
            if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS and answer.body:
                table[member.client_id] = bodies.ConsumerStatusBody.decode(answer.body).message_queue_table
        return request.reply(body=bodies.ConsumerStatusBody(consumer_table=table).encode())

    def _member(self, group: str, client_id: str | None) -> Member[Connection]:
        known = self._broker.groups.get(group)
        for member in known.members.values() if known is not None else ():
            if member.client_id == client_id:
                return member
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
