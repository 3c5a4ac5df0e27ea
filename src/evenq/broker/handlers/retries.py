"""Retries: members give back what they could not consume.

Behaviour
    The message goes to the retry topic of the group, from which it comes back after the time of a delay level: the one
    that is asked for, or the third and with each time the next. After as many times as the group allows, or where the
    level is negative, it goes to the group's dead letters.

Codes
    CONSUMER_SEND_MSG_BACK

Not implemented
    Messages of other brokers, and retry policies by group: the Java broker leaves those to its proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.scheduling.parked import TIMER_TOPIC
from evenq.broker.scheduling.transactions import HALF_TOPIC, OP_TOPIC
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.store.levels import SCHEDULE_TOPIC
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["SendBackHandlers"]

# Topics whose messages wait for something and that no group consumes.
_WAITING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC})


class SendBackHandlers:
    """The handler of messages that are given back."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    def _send_back(self, request: Command, connection: Connection) -> Command | None:
        header = headers.SendBack.from_ext(request.ext)
        group = self._broker.retries.group(header.group)
        if group.retry_queue_nums <= 0:
            return request.reply()
        message = self._broker.store.message_at(header.offset)
        if message is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        if message.topic in _WAITING:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"the message at {header.offset} is in {message.topic}, where it is for nobody yet: send back what "
                f"was pulled",
            )
        self._broker.parked.store_or_park(*self._broker.retries.sent_back(message, header, group))
        return self._broker.answer_when_durable(request.reply(), connection)
