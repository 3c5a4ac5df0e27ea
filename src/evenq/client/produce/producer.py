"""The producer. asyncio; the sync one is a facade on it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from evenq.balance import HashSelector, SelectorLike, as_selector, queue_chooser
from evenq.client.calling import call
from evenq.client.closing import Closing
from evenq.client.net.acl import Credentials
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.client.net.tls import TlsLike
from evenq.client.produce.batching import check_batch, checked_message, send_divided, send_whole
from evenq.client.produce.gathering import Convoy, Linger, OneByOne
from evenq.client.produce.outgoing import Packer, SendRequests, unique_ids
from evenq.client.produce.recalls import Recalls
from evenq.client.produce.replies import Replies
from evenq.client.produce.sender import Promise, Select, Sender
from evenq.client.produce.sendevents import SendEvent, SendHooks
from evenq.client.produce.trace import FLUSH_EVERY, TRACE_TOPIC, Tracer
from evenq.client.produce.transactions import Check, Execute, Transactions, transaction_id
from evenq.client.settings import (
    Intervals,
    Timeouts,
    checked_callable,
    checked_count,
    checked_kind,
    checked_seconds,
    checked_timeout,
    checked_trace,
)
from evenq.errors import ArgumentError, RemoteError
from evenq.model import Message, MessageQueue, SendResult, TransactionResult, TransactionState
from evenq.protocol.compression import DEFAULT_THRESHOLD, Compression, checked_compression
from evenq.protocol.names import group_error
from evenq.protocol.view import MessageView

__all__ = ["Producer"]

# Seconds between looks at who may be back.
PROBE_EVERY = 1.0

_by_hash = HashSelector()


class Producer:
    """Sends messages.

    ====================== ==================================================================================
    ``retries``            further tries after the first one failed; each avoids the broker that failed last
    ``retry_not_ok``       also try another broker when one stored the message, but with another status than
                           ``SEND_OK``; the message may then be stored twice
    ``send_latency_fault`` keep away from slow and failing brokers: ``False``, ``"classic"`` or ``"v5"``
    ``linger``             seconds that a message may wait for others, to travel with them in one batch
    ``coalesce``           let messages that wait for a busy broker travel together; no message waits for that
    ``compress_over``      bodies of more bytes are compressed, by ``compression``
    ``topic_queues``       queues of a topic that the broker makes on the first send
    ``check``              tells a broker that asks what became of a transaction
    ``trace``              tell the trace topic, or the one named, of every message
    ``namespace``          a name that stands before those of all topics and groups
    ``credentials``        who we are; without it the environment is asked (``EVENQ_ACCESS_KEY``, …)
    ====================== ==================================================================================
    """

    def __init__(
        self,
        namesrv: str,
        group: str = "evenq-producer",
        *,
        instance: str | None = None,
        namespace: str = "",
        retries: int = 2,
        retry_not_ok: bool = False,
        send_latency_fault: Literal[False, "classic", "v5"] = False,
        linger: float = 0.0,
        coalesce: bool = True,
        compress_over: int = DEFAULT_THRESHOLD,
        compression: Compression = "ZLIB",
        max_message_size: int = 4 * 1024 * 1024,
        topic_queues: int = 4,
        check: Check | None = None,
        trace: bool | str = False,
        credentials: Credentials | None = None,
        tls: TlsLike = None,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        checked_kind("group", group, str, "give the name of a producer group")
        if error := group_error(group):
            raise ArgumentError("group", group, error)
        for name, value, least in (
            ("retries", retries, 0),
            ("compress_over", compress_over, 0),
            ("max_message_size", max_message_size, 1),
            ("topic_queues", topic_queues, 1),
        ):
            checked_count(name, value, least)
        checked_seconds("linger", linger)
        if check is not None:
            checked_callable("check", check)
        trace_topic = checked_trace(trace, TRACE_TOPIC)
        self.group = group
        self._session = session = Session(
            namesrv,
            instance=instance,
            timeouts=timeouts,
            intervals=intervals,
            tls=tls,
            credentials=credentials,
            namespace=namespace,
        )
        wire_group = session.wire_name(group)
        session.producing(wire_group)
        self._chooser = queue_chooser(send_latency_fault, clock=lambda: clock() * 1000, random=_random)
        self._packer = packer = Packer(
            unique_ids(session.client_id),
            compression=checked_compression(compression),
            compress_over=compress_over,
            max_message_size=max_message_size,
            namespace=session.namespace,
        )
        requests = SendRequests(wire_group, topic_queues, session.wire_name)
        self._sender = sender = Sender(
            session,
            requests,
            self._chooser,
            tries=1 + retries,
            topic_queues=topic_queues,
            retry_not_ok=retry_not_ok,
            clock=clock,
        )
        self._way = OneByOne(sender, packer)
        if linger:
            self._way = Linger(session, sender, packer, linger)
        elif coalesce:
            self._way = Convoy(session, sender, packer)
        self._hooks = SendHooks(clock)
        self._transactions = Transactions(session, sender, packer, wire_group, check)
        self._replies = Replies(session, sender, packer)
        self._recalls = Recalls(session, wire_group)
        self._tracer: Tracer | None = None
        if trace_topic:
            self._tracer = Tracer(sender, packer, group, trace_topic)
            sender.observer = self._tracer.sent
            self._transactions.observer = self._tracer.ended
        self._started = False
        self._closing = Closing()

    @property
    def client_id(self) -> str:
        return self._session.client_id

    def on_send(self, hook: Callable[[SendEvent], None]) -> None:
        """Call ``hook`` when the send of a message has ended, with the message, its receipt or error, and the time that
        it took. The hook runs in the event loop before whoever waits for the send goes on: it must not block."""
        self._hooks.add(hook)

    async def start(self) -> None:
        """Nothing is asked yet: routes and connections come with the first send."""
        self._closing.check_open("producer")
        if not self._started:
            self._started = True
            self._session.start()
            self._session.spawn(self._session.every(PROBE_EVERY, self._probe, "probing of brokers"))
            if self._tracer is not None:
                self._session.spawn(self._session.every(FLUSH_EVERY, self._tracer.flush, "sending of the trace"))

    async def flush(self) -> None:
        """Wait until all that was begun is stored, or has failed."""
        self._way.flush()
        await self._sender.idle()

    async def close(self) -> None:
        """Let what was begun end, then leave; nothing new is taken. Safe to call twice: both calls return at the end.

        A send that is cut off, because this call is cancelled, fails with :class:`~evenq.SendInterrupted`.
        """
        trace = [self._tracer.flush] if self._tracer is not None else []
        await self._closing.run(self.flush, *trace, self._session.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        message: Message,
        *,
        selector: SelectorLike | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored it.

        The queues take turns. With a ``selector`` it says where (``arg`` is handed to it), with a sharding key its hash
        does, and a retry stays there: messages with the same ``arg`` or key keep their order.
        """
        return await self.send_async(message, selector=selector, arg=arg, queue=queue, timeout=timeout)

    def send_async(
        self,
        message: Message,
        *,
        selector: SelectorLike | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Begin to send, and give the future of the receipt: no task is made, so many may be on their way. What is
        wrong with the message, or raised by the selector, comes through the future.

        Those that are on their way at the same time may be stored in any order: for order wait for each. What comes
        while a broker has much to answer waits until it has answered something, and travels with others.
        """
        promise: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._begin(promise, message, selector, arg, queue, timeout)
        return promise

    def _begin(
        self,
        promise: Promise[SendResult],
        message: Message,
        selector: SelectorLike | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> None:
        """The same for a promise of any kind: the sync surface has its own."""
        self._closing.check_open("producer")
        seconds = self._seconds(timeout)
        select = _select(message, selector, arg, queue)
        if self._hooks:
            promise = self._hooks.observe(message, promise)
        try:
            self._way.begin(message, promise, seconds, select)
        except Exception as error:  # noqa: BLE001 - where the route is not known yet, the same errors come later
            promise.set_exception(error)

    async def send_oneway(
        self,
        message: Message,
        *,
        selector: SelectorLike | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send, and do not ask what became of it: it may be lost, and nobody will say so."""
        self._closing.check_open("producer")
        seconds = self._seconds(timeout)
        select = _select(message, selector, arg, queue)
        parcel = self._packer.message(message)
        await self._hooks.around(message, self._sender.oneway(parcel, seconds, select))

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        split: bool = False,
        timeout: float | None = None,
    ) -> Sequence[SendResult]:
        """Send messages of one topic in one request, to one queue; gives their receipts in the same order.

        With ``split`` they are sent in as many requests as it takes, each with the timeout: where one of them fails,
        :class:`~evenq.PartlySent` tells which messages it was. Sharding keys are kept together.
        """
        self._closing.check_open("producer")
        batch, plain = check_batch(messages)
        seconds = self._seconds(timeout)
        parts: list[tuple[Select | None, Sequence[int]]] = [(_select(batch[0], None, None, queue), range(len(batch)))]
        if not plain and queue is None and any(message.sharding_key is not None for message in batch):
            parts = _by_queue(await self._sender.route(batch[0].topic), batch)
        if split:
            return await self._hooks.around_all(batch, send_divided(self._sender, self._packer, batch, seconds, parts))
        if len(parts) > 1:
            raise ArgumentError(
                "messages",
                f"sharding keys of {len(parts)} queues",
                "one request goes to one queue: send those of one key at a time, or let split=True divide them",
            )
        sending = send_whole(self._sender, self._packer, batch, plain, seconds, parts[0][0])
        return await self._hooks.around_all(batch, sending)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> TransactionResult:
        """Store a message that nobody sees, call ``execute(message, transaction id)``, and do what it returns.

        ``TransactionState.COMMIT`` lets the message be seen, ``ROLLBACK`` drops it, and at ``UNKNOWN``, or where
        ``execute`` raised an error (which is raised here), the broker asks the producer's ``check`` later on.
        """
        half = await self._begin_transaction(message, timeout)
        state = await call(execute, message, transaction_id(half)) if half.ok else TransactionState.ROLLBACK
        return await self._end_transaction(message, half, state)

    async def _begin_transaction(self, message: Message, timeout: float | None) -> SendResult:
        self._closing.check_open("producer")
        checked_message(message)
        return await self._hooks.around(message, self._transactions.begin(message, self._seconds(timeout)))

    async def _end_transaction(self, message: Message, half: SendResult, state: TransactionState) -> TransactionResult:
        return await self._transactions.end(message, half, state)

    async def request(
        self,
        message: Message,
        *,
        selector: SelectorLike | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> MessageView:
        """Send a message that asks, and wait for the reply of the consumer that gets it."""
        self._closing.check_open("producer")
        select = _select(message, selector, arg, queue)
        return await self._hooks.around(message, self._replies.request(message, self._seconds(timeout), select))

    async def reply(
        self,
        request: MessageView,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Answer a message that was sent by :meth:`request`."""
        self._closing.check_open("producer")
        return await self._replies.reply(request, body, properties or {}, self._seconds(timeout))

    async def recall(self, receipt: SendResult | str, *, timeout: float | None = None) -> str:
        """Take back a timed message (``deliver_at``) before it is delivered; gives its ``msg_id``.

        Give its receipt, or the ``recall_handle`` of the receipt, which any producer may keep and use: it names topic,
        broker, time and message. The broker does not look whether the message is still there: one that was taken back
        before is taken back again without an error. What is due within a second may be delivered nevertheless.
        """
        self._closing.check_open("producer")
        return await self._recalls.recall(receipt, self._seconds(timeout))

    def _seconds(self, timeout: float | None) -> float:
        return self._session.timeouts.send if timeout is None else checked_timeout(timeout)

    async def _probe(self) -> None:
        """Ask brokers that did not answer whether they are back; only some kinds of fault avoidance want that."""
        masters = self._session.routes.masters()
        for broker in self._chooser.due_probes():
            if broker not in masters:
                self._chooser.forget(broker)
                continue
            try:
                await self._session.beat_at(masters[broker])
            except RemoteError:
                self._chooser.probed(broker, answered=False)
            else:
                self._chooser.probed(broker, answered=True)


def _select(message: Message, selector: SelectorLike | None, arg: object, queue: MessageQueue | None) -> Select | None:
    """How to find the one queue that the caller wants; None where any will do."""
    checked_message(message)
    if selector is None and queue is None and message.sharding_key is None:
        return None
    if selector is not None and queue is not None:
        raise ArgumentError("selector", selector, "give a selector or a queue, not both")
    if selector is None:
        selector, arg = _by_hash, message.sharding_key
    chosen = as_selector(selector)

    def select(route: Route) -> MessageQueue:
        wanted = chosen.select(route.writable.queues, message, arg) if queue is None else queue
        if wanted not in route.writable.queues:
            raise ArgumentError("queue", str(wanted), f"topic {message.topic!r} has no such queue to write to")
        return wanted

    return select


def _by_queue(route: Route, messages: Sequence[Message]) -> list[tuple[Select | None, Sequence[int]]]:
    """The positions of messages by the queue that their sharding key wants; those without a key go anywhere."""
    found: dict[MessageQueue | None, tuple[Select | None, list[int]]] = {}
    for at, message in enumerate(messages):
        select = _select(message, None, None, None)
        _, positions = found.setdefault(select and select(route), (select, []))
        positions.append(at)
    return list(found.values())


# spreads load; guards nothing
_random = random.SystemRandom()
