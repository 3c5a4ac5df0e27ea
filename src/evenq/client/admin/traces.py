"""Traces: what clients told the trace topic of one message, who sent it and who consumed it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec

from evenq.client.admin.base import moment
from evenq.client.admin.messages import FOREVER, Messages
from evenq.protocol.headers import QueryMessage
from evenq.protocol.traces import (
    KINDS,
    OUTCOMES,
    TRACE_TOPIC,
    AfterRecord,
    BeforeRecord,
    EndRecord,
    RecallRecord,
    SentRecord,
    TraceRecord,
    client_of,
    decode_trace,
)
from evenq.protocol.view import MessageView

__all__ = ["DeliveryTrace", "EndTrace", "MessageTrace", "RecallTrace", "SendTrace", "Traces"]

log = logging.getLogger(__name__)

R = TypeVar("R", bound=TraceRecord)
# Trace messages that a broker gives at most: the newest.
_MOST = 64


class SendTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A send of the message: by the producer ``group`` on the host ``client``, begun ``at``, stored by ``broker``.

    ``ok`` is False where it was stored with less safety than asked for, or not at all. ``kind`` is ``NORMAL``,
    ``HALF`` (of a transaction), ``COMMIT``, ``DELAYED`` or ``ORDERED``. ``broker`` is None where no broker has the
    address ``store_host`` now.
    """

    group: str
    client: str
    at: datetime | None
    took_ms: int
    ok: bool
    topic: str
    broker: str | None
    store_host: str
    offset_msg_id: str
    kind: str
    tags: str
    keys: tuple[str, ...]
    body_size: int


class DeliveryTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a consumer's handler with the message, which its group had ``tries`` times before.

    ``client`` is the consumer's address and process. ``began`` or ``ended`` is None where the trace does not tell of
    it (yet), and so are ``took_ms``, ``ok`` and ``outcome``: ``SUCCESS``, ``TIME_OUT``, ``EXCEPTION``, ``RETURNNULL``
    or ``FAILED``. The time of a call with many messages is shared out among them.
    """

    group: str | None
    client: str
    began: datetime | None
    ended: datetime | None
    took_ms: int | None
    ok: bool | None
    outcome: str | None
    tries: int | None


class EndTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the message's transaction: ``state`` is Java's, such as ``COMMIT_MESSAGE``. With ``from_check`` a
    broker had asked for it."""

    group: str
    client: str
    at: datetime | None
    transaction_id: str
    state: str
    from_check: bool


class RecallTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The message was taken back before its time."""

    group: str
    client: str
    at: datetime | None
    ok: bool


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace tells of one message, in the order of time."""

    msg_id: str
    sends: tuple[SendTrace, ...]
    deliveries: tuple[DeliveryTrace, ...]
    ends: tuple[EndTrace, ...]
    recalls: tuple[RecallTrace, ...]

    def __bool__(self) -> bool:
        return bool(self.sends or self.deliveries or self.ends or self.recalls)


class Traces(Messages):
    """What can be asked of the trace."""

    async def trace(self, msg_id: str, *, topic: str = TRACE_TOPIC) -> MessageTrace:
        """What clients with ``trace=True`` told of the message with this id of its producer: ``msg_id`` of its
        receipt, ``unique_key`` of the message. It is false where they told nothing.

        They tell a second later, and keys are indexed a moment after that. Of each broker the newest 64 messages of
        the trace are looked at. ``topic`` is for clients that were given another one.
        """
        header = QueryMessage(
            topic=self._wire(topic), key=msg_id, max_num=_MOST, begin_timestamp=0, end_timestamp=FOREVER
        )
        messages = [message for message in await self._query(header) if msg_id in message.keys]
        # the record and the host that told it; a trace message that was sent twice tells the same twice
        told = list(dict.fromkeys(found for message in messages for found in _told(message, msg_id)))
        names = {
            address: name
            for name, data in (await self._cluster_info()).broker_addr_table.items()
            for address in data.broker_addrs.values()
        }
        return MessageTrace(
            msg_id=msg_id,
            sends=tuple(_send(record, host, names) for record, host in _only(SentRecord, told)),
            deliveries=_deliveries(_only(BeforeRecord, told), _only(AfterRecord, told)),
            ends=tuple(
                EndTrace(
                    group=record.group,
                    client=host,
                    at=moment(record.at_ms),
                    transaction_id=record.transaction_id,
                    state=record.state,
                    from_check=record.from_check,
                )
                for record, host in _only(EndRecord, told)
            ),
            recalls=tuple(
                RecallTrace(group=record.group, client=host, at=moment(record.at_ms), ok=record.ok)
                for record, host in _only(RecallRecord, told)
            ),
        )


def _told(message: MessageView, msg_id: str) -> Iterable[tuple[TraceRecord, str]]:
    """The records of one message of the trace that speak of a message, and the host that they came from."""
    found = decode_trace(message.body)
    for reason in found.damaged:
        log.warning("%s at %d: a record of the trace is skipped: %s", message.queue, message.queue_offset, reason)
    host = message.born_host.rpartition(":")[0]
    return [(record, host) for record in found.records if getattr(record, "msg_id", None) == msg_id]


def _only(kind: type[R], told: Iterable[tuple[TraceRecord, str]]) -> list[tuple[R, str]]:
    found = [(record, host) for record, host in told if isinstance(record, kind)]
    return sorted(found, key=lambda each: getattr(each[0], "at_ms", None) or 0)


def _send(record: SentRecord, host: str, names: dict[str, str]) -> SendTrace:
    return SendTrace(
        group=record.group,
        client=host,
        at=moment(record.at_ms),
        took_ms=record.took_ms,
        ok=record.ok,
        topic=record.topic,
        broker=names.get(record.store_host),
        store_host=record.store_host,
        offset_msg_id=record.offset_msg_id,
        kind=_name(KINDS, record.kind),
        tags=record.tags,
        keys=tuple(record.keys.split()),
        body_size=record.body_size,
    )


def _deliveries(
    before: list[tuple[BeforeRecord, str]], after: list[tuple[AfterRecord, str]]
) -> tuple[DeliveryTrace, ...]:
    """Calls by their id; of some the trace has only one of the two records."""
    began = {record.request: (record, host) for record, host in before}
    ended = {record.request: (record, host) for record, host in after}
    return tuple(_delivery(request, began.get(request), ended.get(request)) for request in {**began, **ended})


def _delivery(
    request: str, began: tuple[BeforeRecord, str] | None, ended: tuple[AfterRecord, str] | None
) -> DeliveryTrace:
    before, after = began and began[0], ended and ended[0]
    hosts = [each[1] for each in (began, ended) if each is not None]
    return DeliveryTrace(
        group=before.group if before else after.group if after else None,
        client=client_of(request) or hosts[0],
        began=moment(before.at_ms) if before else None,
        ended=moment(after.at_ms) if after and after.at_ms else None,
        took_ms=after.took_ms if after else None,
        ok=after.ok if after else None,
        outcome=_outcome(after) if after else None,
        tries=before.tries if before else None,
    )


def _outcome(after: AfterRecord) -> str:
    if after.outcome is None:
        return OUTCOMES[0] if after.ok else OUTCOMES[-1]
    return _name(OUTCOMES, after.outcome)


def _name(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)
