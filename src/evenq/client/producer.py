"""The producer. asyncio; the sync one is a facade on it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from ipaddress import ip_address
from types import TracebackType
from typing import Literal, Self

import msgspec

from evenq.balance import QueueChooser, SelectorLike, as_selector, queue_chooser
from evenq.client.remote import refusal
from evenq.client.routes import Route
from evenq.client.sending import Tries
from evenq.client.session import Session
from evenq.client.settings import Intervals, Timeouts
from evenq.errors import ArgumentError, RemoteError
from evenq.model import Message, MessageQueue, Property, SendResult, SendStatus
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.compression import DEFAULT_THRESHOLD, compress
from evenq.protocol.headers import SendRequestV2, SendResponse
from evenq.protocol.ids import UniqueIds
from evenq.protocol.properties import encode_properties

__all__ = ["Producer"]

# Answers that mean: stored, but with less safety than was asked for.
_STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


# Seconds between looks at who may be back.
PROBE_EVERY = 1.0


class _Outgoing(msgspec.Struct, frozen=True):
    """A message as it goes on the wire; the same bytes for every try, so that all tries have one id."""

    unique_key: str
    body: bytes
    sys_flag: int
    properties: str
    flag: int


class _Fixed:
    """The choice of a send that a selector, or the caller, has bound to one queue: retries stay there."""

    def __init__(self, queue: MessageQueue, chooser: QueueChooser) -> None:
        self._queue = queue
        self.record = chooser.record

    def choose(self, last_broker: str | None) -> MessageQueue:
        return self._queue


class _Free:
    """The choice of a send that may go anywhere: the chooser's, over the newest route."""

    def __init__(self, route: Route, chooser: QueueChooser) -> None:
        self.route = route
        self._chooser = chooser
        self.record = chooser.record

    def choose(self, last_broker: str | None) -> MessageQueue:
        return self._chooser.choose(self.route.writable, last_broker)


class Producer:
    """Sends messages.

    ====================== ==================================================================================
    ``retries``            further tries after the first one failed; each avoids the broker that failed last
    ``send_latency_fault`` keep away from slow and failing brokers: ``False``, ``"classic"`` or ``"v5"``
    ``compress_over``      bodies of more bytes are compressed
    ``topic_queues``       queues of a topic that the broker makes on the first send
    ====================== ==================================================================================
    """

    def __init__(
        self,
        namesrv: str,
        group: str = "evenq-producer",
        *,
        instance: str | None = None,
        retries: int = 2,
        send_latency_fault: Literal[False, "classic", "v5"] = False,
        compress_over: int = DEFAULT_THRESHOLD,
        max_message_size: int = 4 * 1024 * 1024,
        topic_queues: int = 4,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not group or group.split() != [group]:
            raise ArgumentError("group", group, "give the name of a producer group, without spaces")
        if retries < 0:
            raise ArgumentError("retries", retries, "give 0 or more")
        self.group = group
        self._tries = 1 + retries
        self._compress_over = compress_over
        self._max_message_size = max_message_size
        self._topic_queues = topic_queues
        self._clock = clock
        self._session = Session(namesrv, instance=instance, timeouts=timeouts, intervals=intervals)
        self._session.producing(group)
        self._chooser = queue_chooser(send_latency_fault, clock=lambda: clock() * 1000, random=_random)
        address = ip_address(self._session.client_id.partition("@")[0].partition("%")[0]).packed
        self._ids = UniqueIds(address=address, pid=os.getpid(), salt=_random.getrandbits(32), clock=time.time)
        self._started = False

    @property
    def client_id(self) -> str:
        return self._session.client_id

    async def start(self) -> None:
        """Nothing is asked yet: routes and connections come with the first send."""
        self._session.check_open("producer")
        if not self._started:
            self._started = True
            self._session.start()
            self._session.spawn(self._session.every(PROBE_EVERY, self._probe))

    async def close(self) -> None:
        await self._session.close()

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

        Without ``selector`` and ``queue`` the queues take turns. With a ``selector`` it says where (``arg`` is handed
        to it), and a retry stays there: messages with the same ``arg`` keep their order.
        """
        self._session.check_open("producer")
        seconds = self._session.timeouts.send if timeout is None else timeout
        began = self._clock()
        outgoing = self._outgoing(message)
        route = await self._route(message.topic)
        free = _Free(route, self._chooser)
        choice = (
            free
            if queue is None and selector is None
            else _Fixed(_bound(route, message, selector, arg, queue), self._chooser)
        )

        async def attempt(queue: MessageQueue, seconds: float) -> SendResult:
            return await self._send_to(free.route.address(queue.broker), queue, outgoing, seconds)

        async def stale() -> None:
            free.route = await self._session.routes.refresh(message.topic)

        tries = Tries(message.topic, self._tries, seconds - (self._clock() - began), self._clock)
        return await tries.run(choice, attempt, stale)

    async def _probe(self) -> None:
        """Ask brokers that did not answer whether they are back; only some kinds of fault avoidance want that."""
        masters = self._session.routes.masters()
        for broker in self._chooser.due_probes():
            if broker not in masters:
                self._chooser.forget(broker)
                continue
            try:
                await self._session.remote.heartbeat(masters[broker], self._session.heartbeat())
            except RemoteError:
                self._chooser.probed(broker, answered=False)
            else:
                self._chooser.probed(broker, answered=True)

    async def _route(self, topic: str) -> Route:
        route = self._session.routes.known(topic)
        if route is None:
            route = await self._session.routes.get_for_send(topic, self._topic_queues)
        if not route.writable.queues:
            raise ArgumentError(
                "topic", topic, "none of its queues may be written now: look at its permissions and brokers"
            )
        return route

    async def _send_to(self, address: str, queue: MessageQueue, outgoing: _Outgoing, seconds: float) -> SendResult:
        command = Command(RequestCode.SEND_MESSAGE_V2, ext=self._header(queue, outgoing).to_ext(), body=outgoing.body)
        answer = await self._session.connections.request(address, command, seconds)
        status = _STATUS.get(answer.code)
        if status is None:
            raise refusal(address, RequestCode.SEND_MESSAGE_V2, answer)
        stored = SendResponse.from_ext(answer.ext)
        return SendResult(
            status=status,
            queue=MessageQueue(queue.topic, queue.broker, stored.queue_id),
            offset=stored.queue_offset,
            msg_id=outgoing.unique_key,
            offset_msg_id=stored.msg_id,
            transaction_id=stored.transaction_id,
        )

    def _header(self, queue: MessageQueue, outgoing: _Outgoing) -> SendRequestV2:
        return SendRequestV2(
            producer_group=self.group,
            topic=queue.topic,
            default_topic_queue_nums=self._topic_queues,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=outgoing.flag,
            properties=outgoing.properties,
            broker_name=queue.broker,
        )

    def _outgoing(self, message: Message) -> _Outgoing:
        if not message.body:
            raise ArgumentError("body", message.body, "give at least one byte: a broker refuses an empty message")
        if len(message.body) > self._max_message_size:
            raise ArgumentError(
                "body",
                f"{len(message.body)} bytes",
                f"at most {self._max_message_size} bytes fit: raise max_message_size here and on the broker",
            )
        properties = message.wire_properties()
        unique_key = properties.setdefault(Property.UNIQUE_KEY, self._ids.next())
        body, sys_flag = message.body, 0
        if len(body) > self._compress_over:
            body, sys_flag = compress(body)
        return _Outgoing(unique_key, body, sys_flag, encode_properties(properties), message.flag)


def _bound(
    route: Route, message: Message, selector: SelectorLike | None, arg: object, queue: MessageQueue | None
) -> MessageQueue:
    """The one queue that the caller wants."""
    if queue is None:
        assert selector is not None
        queue = as_selector(selector).select(route.writable.queues, message, arg)
    elif selector is not None:
        raise ArgumentError("selector", selector, "give a selector or a queue, not both")
    if queue not in route.writable.queues:
        raise ArgumentError("queue", str(queue), f"topic {message.topic!r} has no such queue to write to")
    return queue


# spreads load and ids; guards nothing
_random = random.SystemRandom()
