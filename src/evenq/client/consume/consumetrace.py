"""What a consumer tells the trace: every message before and after it was handled, as Java's consumers do.

Both records of a call have its id, which begins with the address and the process of the consumer: so the tools, and
``evenq audit``, know who had a message, when, for how long, and what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from evenq.balance import RoundRobinChooser
from evenq.client.consume.dispatch import Outcome, failures
from evenq.client.net.session import Session
from evenq.client.produce.outgoing import Packer, SendRequests, unique_ids
from evenq.client.produce.sender import Sender
from evenq.client.produce.trace import DEFAULT_REGION, Record, TraceLog
from evenq.protocol.compression import DEFAULT_THRESHOLD
from evenq.protocol.traces import AfterRecord, BeforeRecord
from evenq.protocol.view import MessageView

__all__ = ["ConsumeTracer", "TracedCall", "after_records", "before_records"]

# Java's names of what came of a call, by number: a success, and a failure that the handler told of.
SUCCESS, FAILED = 0, 4
# tries of a trace message, and the queues of its topic where that is made
TRIES, QUEUES = 2, 1
MOST_BYTES = 4 * 1024 * 1024


class TracedCall(NamedTuple):
    """A call of the handler: its id, what it was given, and when it began."""

    request: str
    given: Sequence[MessageView]
    began_ms: int

    @property
    def messages(self) -> list[MessageView]:
        """Those that are traced: all but the ones of brokers that have the trace switched off."""
        return [message for message in self.given if message.properties.get("TRACE_ON") != "false"]


def _id_of(message: MessageView) -> str:
    return message.unique_key or message.msg_id


def before_records(call: TracedCall, group: str) -> Iterable[Record]:
    """The handler is about to get these messages."""
    for message in call.messages:
        unique, keys = _id_of(message), message.keys
        region = message.properties.get("MSG_REGION") or DEFAULT_REGION
        text = BeforeRecord(
            at_ms=call.began_ms,
            region=region,
            group=group,
            request=call.request,
            msg_id=unique,
            tries=message.reconsume_times,
            keys=" ".join(keys),
        ).encode()
        yield Record(text, (unique, *keys))


def after_records(call: TracedCall, group: str, outcome: Outcome, now_ms: int) -> Iterable[Record]:
    """The handler has said what came of these messages; a call's time is shared out among them."""
    took = (now_ms - call.began_ms) // len(call.given)
    again = {id(message) for message, _ in failures(call.given, outcome)}
    for message in call.messages:
        unique, keys = _id_of(message), message.keys
        failed = id(message) in again
        text = AfterRecord(
            request=call.request,
            msg_id=unique,
            took_ms=took,
            ok=not failed,
            keys=" ".join(keys),
            outcome=FAILED if failed else SUCCESS,
            at_ms=now_ms,
            group=group,
        ).encode()
        yield Record(text, (unique, *keys))


class ConsumeTracer:
    """Records the calls of a handler, and sends that with the connections of the consumer."""

    def __init__(self, session: Session, group: str, topic: str, clock: Callable[[], float] = time.time) -> None:
        self._ids = unique_ids(session.client_id)
        packer = Packer(self._ids, compression="ZLIB", compress_over=DEFAULT_THRESHOLD, max_message_size=MOST_BYTES)
        requests = SendRequests(f"{group}-trace", QUEUES, session.wire_name)
        chooser = RoundRobinChooser(Random())
        self._log = TraceLog(Sender(session, requests, chooser, tries=TRIES, topic_queues=QUEUES), packer, topic)
        self._group = group
        self._clock = clock
        self.flush = self._log.flush

    def began(self, messages: Sequence[MessageView]) -> TracedCall:
        """Note that the handler gets these messages now."""
        call = TracedCall(self._ids.next(), messages, self._now())
        self._add(before_records(call, self._group))
        return call

    def ended(self, call: TracedCall, outcome: Outcome) -> None:
        self._add(after_records(call, self._group, outcome, self._now()))

    def _add(self, records: Iterable[Record]) -> None:
        for each in records:
            self._log.add(each)

    def _now(self) -> int:
        return round(self._clock() * 1000)
