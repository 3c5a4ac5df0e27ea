"""Recalls: a producer takes a timed message back before it is delivered.

Behaviour
    The answer to a timed message carries a handle. Who sends that back has another message stored for the same second,
    which lets the first one lapse. Whether there was such a message shows only then.

Codes
    RECALL_MESSAGE

Not implemented
    Messages at a delay level cannot be taken back: with the Java broker neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.admission import INT64, BrokerProperty, wire_int
from evenq.broker.scheduling.parked import LONGEST_TIMER, TIMER_TOPIC
from evenq.broker.scheduling.retries import RETRY_PREFIX
from evenq.broker.server import Connection, Handler, Refusal
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.recallhandle import RecallHandle
from evenq.protocol.view import MessageView

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["RecallHandlers", "recall_handle"]


def recall_handle(message: MessageView, broker: str) -> RecallHandle | None:
    """The handle of a message that waits at a broker for its time; None for any other."""
    topic = message.properties.get(Property.REAL_TOPIC, "")
    second = wire_int(message.properties.get(BrokerProperty.TIMER_OUT), 0, INT64[1])
    if message.topic != TIMER_TOPIC or topic.startswith(RETRY_PREFIX) or second is None:
        return None
    # Java counts a millisecond on, so that the same second is meant wherever it is rounded down
    return RecallHandle(topic, broker, second + 1, message.unique_key or "")


class RecallHandlers:
    """The handler of recalls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self._recall}

    def _recall(self, request: Command, connection: Connection) -> Command | None:
        header = headers.RecallRequest.from_ext(request.ext)
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError as error:
            reason = f"recall handle is invalid: {header.recall_handle!r}: {error}"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, reason) from None
        self._check(header, handle)
        admitted = self._broker.admission.admit_recall(
            handle.topic, handle.unique_key, handle.due, header.producer_group, connection.address
        )
        self._broker.parked.store_or_park(admitted.message, admitted.properties)
        answer = headers.RecallResponse(msg_id=handle.unique_key)
        return self._broker.answer_when_durable(request.reply(ext=answer.to_ext()), connection)

    def _check(self, header: headers.RecallRequest, handle: RecallHandle) -> None:
        if header.topic not in self._broker.topics:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        if header.topic != handle.topic:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed, topic not match: it is of {handle.topic}")
        if handle.broker != self._broker.settings.name:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed, the message is at broker {handle.broker}")
        left = handle.due - self._broker.now_ms()
        if not 0 < left < LONGEST_TIMER:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid: it may be delivered")
