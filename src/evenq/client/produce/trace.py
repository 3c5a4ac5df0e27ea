"""The trace of what clients do, as messages of a topic of its own, in the form that RocketMQ's tools read; and what a
producer tells it. What a consumer tells is in :mod:`evenq.client.consume.consumetrace`.

A trace message holds records, in the form of :mod:`evenq.protocol.traces`; its keys are the ids and keys of the
messages that it tells of, so that the tools find it by them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from evenq.client.produce.outgoing import OutgoingBatch, OutgoingMessage, Packer, Parcel
from evenq.client.produce.sender import Sender
from evenq.client.produce.transactions import Ended
from evenq.errors import RemoteError
from evenq.model import Message, SendResult, TransactionState
from evenq.protocol.command import Command
from evenq.protocol.flags import SysFlag
from evenq.protocol.traces import TRACE_TOPIC, EndRecord, SentRecord

__all__ = ["TRACE_TOPIC", "Record", "TraceLog", "Tracer", "ended_record", "sent_record", "trace_messages"]

log = logging.getLogger(__name__)

DEFAULT_REGION = "DefaultRegion"

# Seconds that a record waits for others, and that a trace message may take.
FLUSH_EVERY = 1.0
TIMEOUT = 5.0
# Bytes of a trace message, and of its keys: they are a property.
MOST_BYTES = 128_000
MOST_KEYS = 16_000
# Records that wait at most. Further ones are lost: a trace must not eat the memory of what it traces.
MOST_WAITING = 100_000

# Java's names and numbers; see KINDS in evenq.protocol.traces.
NORMAL, HALF, COMMIT, DELAYED = range(4)
_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class Record(NamedTuple):
    """One record, and the keys to find it by."""

    text: str
    keys: tuple[str, ...]


def sent_record(
    message: Message,
    receipt: SendResult,
    *,
    group: str,
    address: str,
    region: str,
    began_ms: int,
    took_ms: int,
    kind: int = NORMAL,
) -> Record:
    """A message that was stored."""
    text = SentRecord(
        at_ms=began_ms,
        region=region,
        group=group,
        topic=message.topic,
        msg_id=receipt.msg_id,
        tags=message.tags or "",
        keys=" ".join(message.keys),
        store_host=address,
        body_size=len(message.body),
        took_ms=took_ms,
        kind=kind,
        offset_msg_id=receipt.offset_msg_id,
        ok=receipt.ok,
    ).encode()
    return Record(text, (receipt.msg_id, *message.keys))


def ended_record(ended: Ended, *, group: str, region: str, now_ms: int) -> Record:
    """A transaction that ended."""
    text = EndRecord(
        at_ms=now_ms,
        region=region,
        group=group,
        topic=ended.topic,
        msg_id=ended.msg_id,
        tags=ended.tags or "",
        keys=" ".join(ended.keys),
        store_host=ended.address,
        kind=COMMIT,
        transaction_id=ended.transaction_id,
        state=_STATES[ended.state],
        from_check=ended.from_check,
    ).encode()
    return Record(text, (ended.msg_id, *ended.keys))


def trace_messages(topic: str, records: Iterable[Record]) -> Iterator[Message]:
    """The records as messages of the trace topic, as few as their sizes allow."""
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = 0
    for record in records:
        if texts and (size + len(record.text) > MOST_BYTES or sum(map(len, keys)) > MOST_KEYS):
            yield Message(topic, "".join(texts).encode(), keys=list(keys))
            texts, keys, size = [], {}, 0
        texts.append(record.text)
        keys.update(dict.fromkeys(record.keys))
        size += len(record.text)
    if texts:
        yield Message(topic, "".join(texts).encode(), keys=list(keys))


class TraceLog:
    """Records that wait to be sent, a little later and together."""

    def __init__(self, sender: Sender, packer: Packer, topic: str) -> None:
        self._sender = sender
        self._packer = packer
        self._topic = topic
        self._records: list[Record] = []

    def add(self, record: Record) -> None:
        if len(self._records) < MOST_WAITING:
            self._records.append(record)

    async def flush(self) -> None:
        """Send what was recorded. A trace that cannot be sent is given up: it is not worth more than that."""
        records, self._records = self._records, []
        sends = [
            self._sender.send(self._packer.message(message), TIMEOUT)
            for message in trace_messages(self._topic, records)
        ]
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(outcome, RemoteError):
                log.warning("a part of the trace was not sent: %s", outcome)
            elif isinstance(outcome, BaseException):
                raise outcome


class Tracer:
    """Records what a sender and its transactions do, and sends that too, a little later."""

    def __init__(
        self, sender: Sender, packer: Packer, group: str, topic: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._log = TraceLog(sender, packer, topic)
        self._group = group
        self._topic = topic
        self._clock = clock
        self.flush = self._log.flush

    def sent(self, parcel: Parcel[Any], address: str, answer: Command, receipt: Any, seconds: float) -> None:
        """What the sender calls for each parcel that a broker has stored."""
        if parcel.topic == self._topic or answer.ext.get("TRACE_ON") == "false":
            return
        match parcel:
            case OutgoingMessage():
                pairs = [(parcel.message, receipt)]
            case OutgoingBatch():
                pairs = list(zip(parcel.messages, receipt, strict=True))
            case _:
                return
        began = round((self._clock() - seconds) * 1000)
        for message, each in pairs:
            self._log.add(
                sent_record(
                    message,
                    each,
                    group=self._group,
                    address=address,
                    region=answer.ext.get("MSG_REGION") or DEFAULT_REGION,
                    began_ms=began,
                    took_ms=round(seconds * 1000),
                    kind=_kind(message, parcel.sys_flag),
                )
            )

    def ended(self, ended: Ended) -> None:
        """What the transactions call for each one that ends."""
        self._log.add(ended_record(ended, group=self._group, region=DEFAULT_REGION, now_ms=round(self._clock() * 1000)))


def _kind(message: Message, sys_flag: int) -> int:
    if message.delay_level or message.deliver_at is not None:
        return DELAYED
    return HALF if sys_flag & SysFlag.TRANSACTION == SysFlag.PREPARED else NORMAL
