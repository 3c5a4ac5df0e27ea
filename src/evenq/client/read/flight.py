"""Pulls on their way: sent without waiting for each other, answered one by one in the order of the queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from evenq.client.net.connection import Connection
from evenq.client.net.routes import MASTER, Route
from evenq.client.net.session import Session
from evenq.client.read.pull import Pulled, PullTemplates, all_up_to, pulled
from evenq.errors import ConnectError, RemoteError
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

    __slots__ = ("_answer", "_error", "_launcher", "address", "has_landed", "queue", "start", "stop", "to_master")

    def __init__(self, launcher: Launcher, start: int, stop: int) -> None:
        self.queue = launcher.queue
        self.start = start
        self.stop = stop
        self.address = launcher.address
        # else to a slave, which may not have yet what its master has
        self.to_master = launcher.to_master
        self.has_landed = False
        self._launcher = launcher
        self._answer: Command | None = None
        self._error: RemoteError | None = None

    def answered(self, answer: Command) -> None:
        self._answer = answer
        self.has_landed = True
        self._launcher.flights.told()

    def failed(self, error: RemoteError) -> None:
        self._error = error
        self.has_landed = True
        self._launcher.flights.told()

    def brought(self) -> Pulled:
        """What the pull brought, once it has landed. The next pulls go to the replica that it suggests."""
        try:
            if self._error is not None:
                raise self._error
            assert self._answer is not None
            came = pulled(self.address, self._answer)
        except RemoteError:
            self._launcher.pull_from(MASTER)
            raise
        self._launcher.pull_from(came.suggested)
        return came

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
    """Sends the pulls of one queue over the connections of a session.

    They go to the master of the queue's broker, or to the replica that the last answer suggested: a master has those
    who read what has left its memory read from a slave, and a slave sends those who have caught up back. Where that
    one cannot be had, any other replica will do.
    """

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
        self.queue = queue
        self.flights = flights
        # of the replica that pulls are sent to now
        self.address = queue.broker
        self.to_master = True
        self._session = session
        # the replica that they should be sent to
        self._wanted_id = MASTER
        self._pulls = PullTemplates(group, queue, expression, expression_type, hold=session.timeouts.hold)
        self._route: Route | None = None
        self._connection: Connection | None = None

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
            and self._session.routes.known(self.queue.topic) is self._route
        )

    def pull_from(self, broker_id: int) -> None:
        """Send the next pulls to this replica, where the route has it."""
        if broker_id != self._wanted_id:
            self._wanted_id = broker_id
            if self._route is not None and self._route.address(self.queue.broker, broker_id) != self.address:
                # so that the next pull connects
                self._connection = None

    async def launch(self, start: int, stop: int, *, held: bool = False) -> Flight:
        """Ask for the offsets. A connection that cannot be made is a flight that fails, as one that breaks is."""
        if not self.ready:
            try:
                await self._connect()
            except RemoteError as error:
                flight = Flight(self, start, stop)
                flight.failed(error)
                return flight
        return self.send([(start, stop)], held=held)[0]

    def send(self, spans: Sequence[tuple[int, int]], *, held: bool = False) -> list[Flight]:
        """The same for many at once, where the broker is connected."""
        connection, timeouts = self._connection, self._session.timeouts
        assert connection is not None
        sent = [Flight(self, start, stop) for start, stop in spans]
        asked = [((flight.start, flight.stop - flight.start), flight) for flight in sent]
        if held:
            connection.submit_alike(self._pulls.held, asked, timeouts.pull + timeouts.hold)
        else:
            connection.submit_alike(self._pulls.at_once, asked, timeouts.pull)
        return sent

    async def _connect(self) -> None:
        session, queue = self._session, self.queue
        self._connection, self.address, self.to_master = None, queue.broker, True
        route = session.routes.known(queue.topic) or await session.routes.get(queue.topic)
        failure: ConnectError | None = None
        for address in route.replicas(queue.broker, self._wanted_id):
            try:
                self._connection = session.connections.live(address) or await session.connections.get(address)
            except ConnectError as error:
                failure = failure or error
            else:
                self.address, self.to_master = address, address == route.master(queue.broker)
                self._route = route
                return
        assert failure is not None
        raise failure
