"""Pulls on their way: sent without waiting for each other, answered one by one in the order of the queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from evenq.client.net.connection import Connection
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.client.read.pull import Pulled, PullTemplates, all_up_to, pulled
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.protocol.command import Command
from evenq.protocol.filters import EVERYTHING, TAG

__all__ = ["Flight", "Flights", "Launcher"]

# Requests on one connection, over all queues, beyond which a queue with two pulls in flight sends no more.
CROWDED = 256


class Flight:
    """A pull that was sent for the offsets of ``queue`` from ``start`` up to, not including, ``stop``.

    It waits for the answer itself: no future is made, and nobody is woken for an answer whose turn has not come.
    """

    __slots__ = ("_answer", "_error", "_flights", "address", "has_landed", "queue", "start", "stop")

    def __init__(self, flights: Flights, queue: MessageQueue, start: int, stop: int, address: str) -> None:
        self.queue = queue
        self.start = start
        self.stop = stop
        self.address = address
        self.has_landed = False
        self._flights = flights
        self._answer: Command | None = None
        self._error: RemoteError | None = None

    def answered(self, answer: Command) -> None:
        self._answer = answer
        self.has_landed = True
        self._flights.told()

    def failed(self, error: RemoteError) -> None:
        self._error = error
        self.has_landed = True
        self._flights.told()

    def brought(self) -> Pulled:
        """What the pull brought, once it has landed."""
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return pulled(self.address, self._answer)

    def brought_whole(self) -> bytes:
        """The records if they are all that was asked for, as they mostly are; else nothing."""
        return b"" if self._answer is None else all_up_to(self.stop, self._answer)


class Flights:
    """The pulls of one reader that are on their way, in the order in which their answers are wanted."""

    def __init__(self) -> None:
        self._flying: deque[Flight] = deque()
        # whoever waits until the first of them has landed
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._flying)

    @property
    def first(self) -> Flight:
        return self._flying[0]

    def add(self, flights: Iterable[Flight]) -> None:
        self._flying.extend(flights)

    def add_first(self, flight: Flight) -> None:
        self._flying.appendleft(flight)

    async def landed(self) -> Flight:
        """Take the first of them off when it has landed. For one caller at a time."""
        while not self._flying[0].has_landed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._flying.popleft()

    def take_whole(self, queue: MessageQueue, start: int, most: int) -> tuple[list[bytes], Flight | None]:
        """Take those off that go on from ``start`` and have brought all that was asked for, until there are ``most``
        bytes: what they brought, and the last of them."""
        flying = self._flying
        bodies: list[bytes] = []
        last = None
        while most > 0 and flying:
            flight = flying[0]
            if flight.start != start or flight.queue != queue or not (body := flight.brought_whole()):
                break
            bodies.append(body)
            most -= len(body)
            last = flying.popleft()
            start = flight.stop
        return bodies, last

    def told(self) -> None:
        """One of them has landed, or one that was abandoned."""
        waiter = self._waiter
        if waiter is not None and self._flying and self._flying[0].has_landed and not waiter.done():
            waiter.set_result(None)

    def abandon(self) -> None:
        """Nobody waits for these any more."""
        self._flying.clear()


class Launcher:
    """Sends the pulls of one queue over the connections of a session."""

    def __init__(
        self,
        session: Session,
        group: str,
        queue: MessageQueue,
        flights: Flights,
        *,
        expression: str = EVERYTHING,
        expression_type: str = TAG,
    ) -> None:
        self._session = session
        self._queue = queue
        self._flights = flights
        self._pulls = PullTemplates(group, queue, expression, expression_type, hold=session.timeouts.hold)
        self._route: Route | None = None
        self._connection: Connection | None = None
        self._address = queue.broker

    @property
    def room(self) -> int:
        """How much more may be in flight to the broker before more would only take memory."""
        return CROWDED if self._connection is None else CROWDED - self._connection.in_flight

    @property
    def ready(self) -> bool:
        """Whether the broker is connected, by the newest route."""
        connection = self._connection
        return (
            connection is not None
            and not connection.closed
            and self._session.routes.known(self._queue.topic) is self._route
        )

    async def launch(self, start: int, stop: int, *, held: bool = False) -> Flight:
        """Ask for the offsets. A connection that cannot be made is a flight that fails, as one that breaks is."""
        if not self.ready:
            try:
                await self._connect()
            except RemoteError as error:
                flight = Flight(self._flights, self._queue, start, stop, self._address)
                flight.failed(error)
                return flight
        return self.send([(start, stop)], held=held)[0]

    def send(self, spans: Sequence[tuple[int, int]], *, held: bool = False) -> list[Flight]:
        """The same for many at once, where the broker is connected."""
        connection, timeouts, flights, queue = self._connection, self._session.timeouts, self._flights, self._queue
        assert connection is not None
        sent = [Flight(flights, queue, start, stop, self._address) for start, stop in spans]
        asked = [((flight.start, flight.stop - flight.start), flight) for flight in sent]
        if held:
            connection.submit_alike(self._pulls.held, asked, timeouts.pull + timeouts.hold)
        else:
            connection.submit_alike(self._pulls.at_once, asked, timeouts.pull)
        return sent

    async def _connect(self) -> None:
        session, queue = self._session, self._queue
        self._connection, self._address = None, queue.broker
        route = session.routes.known(queue.topic) or await session.routes.get(queue.topic)
        self._address = route.address(queue.broker)
        self._connection = session.connections.live(self._address) or await session.connections.get(self._address)
        self._route = route
