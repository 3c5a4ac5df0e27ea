"""Recalls: to take a timed message back before it is delivered.

The broker stores another message for the same second, which lets the first one lapse. So it answers without having
looked whether that one is still there, and refuses only what can be seen from the handle, such as a time that is over.
"""

from __future__ import annotations

from evenq.client.net.session import Session
from evenq.errors import ArgumentError, ConnectError, RefusedError
from evenq.model import SendResult
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.headers import RecallRequest, RecallResponse
from evenq.protocol.names import without_namespace
from evenq.protocol.recallhandle import RecallHandle

__all__ = ["Recalls"]

# What to do about a refusal, by its code.
_WAYS_OUT: dict[int, str] = {
    ResponseCode.NO_PERMISSION: "set recallMessageEnable=true on the broker",
    ResponseCode.ILLEGAL_OPERATION: "it can be taken back until its second comes, from the broker that has it",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "brokers can do so from RocketMQ 5.3.2 on",
}


class Recalls:
    """Takes messages of one producer back, or of another one whose handles it was given."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def recall(self, receipt: SendResult | str, seconds: float) -> str:
        text, handle = _handle_of(receipt)
        topic = without_namespace(self._session.namespace, handle.topic)
        address = await self._master(topic, handle.broker)
        header = RecallRequest(
            broker_name=handle.broker, topic=handle.topic, producer_group=self._group, recall_handle=text
        )
        code = RequestCode.RECALL_MESSAGE
        try:
            answer = await self._session.remote.ask(address, code, header, timeout=seconds)
        except RefusedError as error:
            way_out = _WAYS_OUT.get(error.code, "see the broker's log")
            remark = f"{error.remark}. Message {handle.unique_key} of topic {topic!r}, handle {text!r}: {way_out}"
            raise type(error)(error.address, error.request, error.code, remark) from None
        return RecallResponse.from_ext(answer.ext).msg_id

    async def _master(self, topic: str, broker: str) -> str:
        """The address of the broker that has the message: a slave could not take it back."""
        routes = self._session.routes
        address = (await routes.get(topic)).master(broker) or (await routes.refresh(topic)).master(broker)
        if not address:
            raise ConnectError(
                broker, f"the route of topic {topic!r} has no master of this broker, where the message to recall waits"
            )
        return address


def _handle_of(receipt: SendResult | str) -> tuple[str, RecallHandle]:
    if isinstance(receipt, SendResult):
        if not receipt.recall_handle:
            raise ArgumentError(
                "receipt",
                receipt.msg_id,
                f"it has no recall handle, so this message to topic {receipt.queue.topic!r} cannot be taken back: "
                "only timed messages sent with deliver_at have one",
            )
        text = receipt.recall_handle
    elif isinstance(receipt, str):
        text = receipt
    else:
        raise ArgumentError("receipt", receipt, "give the receipt of a send, or the recall_handle of one")
    try:
        return text, RecallHandle.decode(text)
    except ValueError as error:
        raise ArgumentError(
            "receipt", text, f"{error}: give the receipt of a send, or the recall_handle of one"
        ) from None
