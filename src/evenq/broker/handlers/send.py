"""Sending: messages come in, one by one or in batches.

Behaviour
    What a client may send, and with which properties, is decided by :mod:`evenq.broker.admission`. A topic that does
    not exist is created after the topic that the sender names as its model (``TBW102``). The answer leaves when the
    message is with the system (asynchronous flush) or on the disk (synchronous flush). Delayed and timed messages go
    where they wait (:mod:`evenq.broker.scheduling.parked`), half messages where nobody consumes them
    (:mod:`evenq.broker.scheduling.transactions`), and what was tried too often to a group's dead letters.

Codes
    SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE

Not implemented
    Messages of a batch are stored at once, also those with a delay level; timed messages in a batch are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenq.broker.admission import REGION, Kind
from evenq.broker.handlers.recalls import recall_handle
from evenq.broker.server import Connection, Handler
from evenq.broker.store.store import NewMessage, StoredMessage
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.ids import pack_host
from evenq.protocol.properties import decode_properties

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["SendHandlers"]

_TRACE = {"MSG_REGION": REGION, "TRACE_ON": "true"}


class SendHandlers:
    """The handlers of sending."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._admission = broker.admission
        self._id_prefix = pack_host(broker.address).hex().upper()

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
        if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._send_batch(request, connection, header)
        admitted = self._admission.admit_send(header, request.body, connection.address)
        message, kind = admitted.message, admitted.kind
        handle = {}
        if kind is Kind.NORMAL:
            stored = self._broker.store.append(message)
        else:
            stored = self._put(message, kind, header)
            handle = self._recall_handle(stored)
        ext = {
            "msgId": self._message_id(stored),
            "queueId": str(message.queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": admitted.unique_key,
            **_TRACE,
            **handle,
        }
        return self._broker.answer_when_durable(request.reply(ext=ext), connection)

    def _put(self, message: NewMessage, kind: Kind, header: headers.SendRequest) -> StoredMessage:
        """Store a message that may not go to its queue, or not yet."""
        # with what the broker has added
        properties = decode_properties(message.properties)
        if kind is Kind.RETRY:
            message, properties = self._broker.retries.redirected(message, properties, header.max_reconsume_times)
        if kind is Kind.HALF:
            return self._broker.transactions.prepare(message, properties)
        return self._broker.parked.store_or_park(message, properties)

    def _recall_handle(self, stored: StoredMessage) -> dict[str, str]:
        """By what the sender can take a message back, if it is a timed one."""
        message = self._broker.store.message_at(stored.log_offset)
        handle = message and recall_handle(message, self._broker.settings.name)
        return {"recallHandle": handle.encode()} if handle else {}

    def _send_batch(self, request: Command, connection: Connection, header: headers.SendRequest) -> Command | None:
        batch = self._admission.admit_batch(header, request.body, connection.address)
        stored = self._broker.store.append_batch(batch)
        ext = {
            "msgId": self._message_ids(stored.log_offsets),
            "queueId": str(batch.queue_id),
            "queueOffset": str(stored.queue_offset),
            **_TRACE,
        }
        return self._broker.answer_when_durable(request.reply(ext=ext), connection)

    def _message_ids(self, log_offsets: Sequence[int]) -> str:
        """The ids of many messages, by commas."""
        offsets = struct.pack(f">{len(log_offsets)}q", *log_offsets).hex(",", 8).upper()
        return self._id_prefix + offsets.replace(",", f",{self._id_prefix}")

    def _message_id(self, stored: StoredMessage) -> str:
        return f"{self._id_prefix}{stored.log_offset:016X}"
