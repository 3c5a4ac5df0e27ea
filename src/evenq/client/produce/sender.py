"""How parcels get to brokers: the short way, without a task, where all is well, and the long way everywhere else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from evenq.balance import QueueChooser
from evenq.client.net.connection import Connection
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.client.produce.outgoing import Parcel, SendRequests, check_topic
from evenq.client.produce.sending import Failure, StoredUnsafely, Tries
from evenq.errors import ArgumentError, ConnectError, RefusedError, RemoteError, StateError
from evenq.model import MessageQueue
from evenq.protocol.codes import ResponseCode, response_name_of
from evenq.protocol.command import Command

__all__ = ["Observer", "Promise", "Select", "Sender"]

log = logging.getLogger(__name__)

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

# Chooses the one queue that the caller wants.
Select = Callable[[Route], MessageQueue]
# Hears of every parcel that was stored: the broker's address, its answer, our receipt, and the seconds that it took.
Observer = Callable[[Parcel[Any], str, Command, Any, float], None]

# A try ends by its own timeout. Whatever else a send waits for ends so much later, to let that be told first.
GRACE = 0.02
# Seconds between two looks at the route of a topic that has a broker which cannot be reached.
LOOK_AGAIN = 1.0

_CLOSED = "this producer was closed before the message was stored"


class Promise(Protocol[R_contra]):
    """Who waits for a receipt: a future of asyncio, one of threads, or all the messages of a batch."""

    def done(self) -> bool: ...
    def set_result(self, result: R_contra, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class _Fixed:
    """The choice of a send that its caller has bound to one queue: retries stay there."""

    def __init__(self, queue: MessageQueue, chooser: QueueChooser) -> None:
        self._queue = queue
        self.record = chooser.record

    def choose(self, last_broker: str | None) -> MessageQueue:
        return self._queue


class _Free:
    """The choice of a send that may go anywhere: the chooser's, over the newest route; the first may be made."""

    def __init__(self, route: Route, chooser: QueueChooser, first: MessageQueue | None) -> None:
        self.route = route
        self._first = first
        self._chooser = chooser
        self.record = chooser.record

    def choose(self, last_broker: str | None) -> MessageQueue:
        first, self._first = self._first, None
        return first or self._chooser.choose(self.route.writable, last_broker)


class _Errand(Generic[R]):
    """One parcel, its promise, its time, and the queue it goes to first. It waits for the answer to the first try."""

    __slots__ = (
        "address", "began", "in_doubt", "parcel", "promise", "queue",
        "seconds", "select", "sender", "started", "unsafe",
    )  # fmt: skip

    def __init__(
        self, sender: Sender, parcel: Parcel[R], promise: Promise[R], seconds: float, select: Select | None
    ) -> None:
        self.sender = sender
        self.parcel = parcel
        self.promise = promise
        self.seconds = seconds
        self.select = select
        self.began = sender.clock()
        self.queue: MessageQueue | None = None
        self.address = ""
        # whether its task, if it has one, has begun
        self.started = False
        # whether a request left that was not answered: a broker may have stored the parcel
        self.in_doubt = False
        # the receipt of a broker that stored the parcel with less safety than was asked for
        self.unsafe: R | None = None

    def check(self, receipt: R, answer: Command) -> None:
        """Raise where another broker may store it more safely."""
        if self.select is None and answer.code != ResponseCode.SUCCESS:
            self.unsafe = receipt
            raise StoredUnsafely(f"stored, but {response_name_of(answer.code)}")

    def answered(self, answer: Command) -> None:
        queue, sender = self.queue, self.sender
        assert queue is not None
        try:
            receipt = self.parcel.read(self.address, queue, answer)
            took = sender.clock() - self.began
            if sender.observer is not None:
                sender.observer(self.parcel, self.address, answer, receipt, took)
            if sender.retry_not_ok:
                self.check(receipt, answer)
            sender.chooser.record(queue.broker, took * 1000)
            if not self.promise.done():
                self.promise.set_result(receipt)
        except RemoteError as error:
            self.failed(error)
            return
        except Exception as error:  # noqa: BLE001 - an answer that nobody can read: whoever waits must hear of it
            sender.give_up(self, error)
            return
        sender.ended()
        sender.on_answer(self.address)

    def failed(self, error: RemoteError) -> None:
        assert self.queue is not None
        self.in_doubt = not isinstance(error, RefusedError)
        self.sender.retry(self, Failure(self.queue, self.sender.clock() - self.began, error))


class Sender:
    """Sends the parcels of one producer. ``observer`` may be set, and hears of what was stored."""

    def __init__(
        self,
        session: Session,
        requests: SendRequests,
        chooser: QueueChooser,
        *,
        tries: int,
        topic_queues: int,
        retry_not_ok: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.retry_not_ok = retry_not_ok
        self._session = session
        self._requests = requests
        self._tries = tries
        self._topic_queues = topic_queues
        self.chooser = chooser
        self.clock = clock
        self.observer: Observer | None = None
        # hears of every answer to a first try, by the broker's address
        self.on_answer: Callable[[str], None] = lambda address: None
        # parcels without a receipt yet, and who waits until there are none
        self._under_way = 0
        self._idle: list[asyncio.Future[None]] = []
        self._looked: dict[str, float] = {}

    def begin(
        self,
        parcel: Parcel[R],
        promise: Promise[R],
        seconds: float,
        select: Select | None = None,
        first: MessageQueue | None = None,
    ) -> None:
        """Get a parcel to a broker within ``seconds``; the promise is kept with its receipt, or an error.

        ``select`` binds it to a queue; without it the queues take turns, unless it was this one's turn ``first``.
        """
        if self._session.closed:
            # a message that waited for others, or one of a batch that was refused
            if not promise.done():
                promise.set_exception(StateError(_CLOSED))
            return
        errand = _Errand(self, parcel, promise, seconds, select)
        errand.queue = first
        connection = self._short_way(errand)
        if connection is None:
            self._under_way += 1
            self._begin_long_way(errand)
            return
        assert errand.queue is not None
        request = self._requests.make(errand.queue, parcel)
        self._under_way += 1
        try:
            connection.submit(request, seconds, errand)
        except Exception as error:  # noqa: BLE001 - it cannot be encoded: whoever waits must hear of it
            self.give_up(errand, error)

    async def send(self, parcel: Parcel[R], seconds: float, select: Select | None = None) -> R:
        """The same, and wait for it."""
        promise: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.begin(parcel, promise, seconds, select)
        return await promise

    async def oneway(self, parcel: Parcel[R], seconds: float, select: Select | None = None) -> None:
        """Send without an answer, in one try. An error tells that it did not leave; nothing tells that it arrived."""
        try:
            async with asyncio.timeout(seconds):
                route = await self.route(parcel.topic)
                queue = self.chooser.choose(route.writable) if select is None else select(route)
                connection = await self._session.connections.get(route.address(queue.broker))
                await connection.send_oneway(self._requests.make(queue, parcel), seconds)
        except RemoteError:
            raise
        except TimeoutError:
            raise Tries(parcel.topic, 1, seconds).timed_out() from None

    async def route(self, topic: str) -> Route:
        """The route to send to a topic by. One that does not exist yet has the default topic's."""
        route = self._session.routes.known(topic)
        if route is None:
            check_topic(topic)
            route = await self._session.routes.get_for_send(topic, self._topic_queues)
        if not route.writable.queues:
            raise ArgumentError(
                "topic", topic, "none of its queues may be written now: look at its permissions and brokers"
            )
        return route

    async def idle(self) -> None:
        """Wait until all that was begun has ended, one way or the other: each has its timeout."""
        while self._under_way:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def ended(self) -> None:
        self._under_way -= 1
        if self._idle and not self._under_way:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    def retry(self, errand: _Errand[R], failure: Failure) -> None:
        """The first try, on the short way, did not succeed: go on."""
        if not self._session.closed:
            self._begin_long_way(errand, failure)
        elif errand.in_doubt:
            self._interrupt(errand, self._tries_of(errand), failure)
        else:
            self.give_up(errand, failure.error)

    def _short_way(self, errand: _Errand[R]) -> Connection | None:
        """The connection to send by at once, if the route is known, the broker is connected and it keeps up."""
        route = self._session.routes.known(errand.parcel.topic)
        if route is None or not route.writable.queues:
            return None
        queue = errand.queue
        if queue is None:
            queue = self.chooser.choose(route.writable) if errand.select is None else errand.select(route)
            errand.queue = queue
        errand.address = route.master(queue.broker)
        connection = self._session.connections.live(errand.address)
        return connection if connection is not None and connection.ready else None

    def _begin_long_way(self, errand: _Errand[R], failure: Failure | None = None) -> None:
        errand.started = False

        def ended(task: asyncio.Task[None]) -> None:
            if not errand.started:
                # cancelled before its first step, so it could not tell anybody
                self._interrupt(errand, self._tries_of(errand), failure)

        self._session.spawn(self._long_way(errand, failure)).add_done_callback(ended)

    async def _long_way(self, errand: _Errand[R], failure: Failure | None = None) -> None:
        """Look the route up, connect, wait for room, try again elsewhere: whatever it takes, in the time it has."""
        errand.started = True
        promise = errand.promise
        tries = self._tries_of(errand)
        try:
            async with asyncio.timeout(tries.left + GRACE):
                receipt = await self._try(errand, tries, failure)
        except asyncio.CancelledError:
            self._interrupt(errand, tries, failure)
            raise
        except RemoteError as error:
            self.give_up(errand, error)
        except TimeoutError:
            self.give_up(errand, tries.timed_out())
        except Exception as error:  # noqa: BLE001 - of a selector, or a mistake of ours: whoever waits must hear of it
            self.give_up(errand, error)
        else:
            if not promise.done():
                promise.set_result(receipt)
            self.ended()

    async def _try(self, errand: _Errand[R], tries: Tries, failure: Failure | None) -> R:
        parcel = errand.parcel
        free = _Free(await self.route(parcel.topic), self.chooser, None if failure else errand.queue)
        choice: _Free | _Fixed = free
        if errand.select is not None:
            choice = _Fixed(errand.queue or errand.select(free.route), self.chooser)

        async def attempt(queue: MessageQueue, seconds: float) -> R:
            began = self.clock()
            address = free.route.address(queue.broker)
            request = self._requests.make(queue, parcel)
            try:
                answer = await self._session.connections.request(address, request, seconds)
            except (RemoteError, asyncio.CancelledError) as error:
                # requests are numbered when they leave
                errand.in_doubt = errand.in_doubt or request.opaque != 0
                if isinstance(error, ConnectError):
                    self._look_again(parcel.topic)
                raise
            receipt = parcel.read(address, queue, answer)
            if self.observer is not None:
                self.observer(parcel, address, answer, receipt, self.clock() - began)
            if self.retry_not_ok:
                errand.check(receipt, answer)
            return receipt

        async def stale() -> None:
            with suppress(RemoteError):
                free.route = await self._session.routes.refresh(parcel.topic)

        return await tries.run(choice, attempt, stale, failure)

    def _tries_of(self, errand: _Errand[R]) -> Tries:
        return Tries(errand.parcel.topic, self._tries, errand.seconds, self.clock, began=errand.began)

    def _interrupt(self, errand: _Errand[R], tries: Tries, failure: Failure | None) -> None:
        """Let whoever waits for a parcel hear that the producer was closed."""
        self.give_up(errand, tries.interrupted(failure) if errand.in_doubt else StateError(_CLOSED))

    def give_up(self, errand: _Errand[R], error: Exception) -> None:
        """Let whoever waits for a parcel hear that nothing will come of it, or no more than the receipt that it has."""
        if isinstance(error, UnicodeEncodeError):
            error = ArgumentError(
                "message",
                error.object[error.start : error.end],
                "UTF-8 cannot encode this part of its topic, tags, keys or properties: it is half of a surrogate pair",
            )
        if not errand.promise.done():
            if errand.unsafe is not None:
                errand.promise.set_result(errand.unsafe)
            else:
                errand.promise.set_exception(error)
        self.ended()

    def _look_again(self, topic: str) -> None:
        """A broker could not be reached, so it may have gone: ask for the route, in the background."""
        now = self.clock()
        if now - self._looked.get(topic, -inf) >= LOOK_AGAIN:
            self._looked[topic] = now
            self._session.spawn(self._refresh(topic))

    async def _refresh(self, topic: str) -> None:
        try:
            await self._session.routes.refresh(topic)
        except RemoteError as error:
            log.debug("topic %s has a broker that cannot be reached, and no new route: %s", topic, error)
