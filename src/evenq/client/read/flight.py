"""Pulls on their way: sent without waiting for each other, answered one by one in the order of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from evenq.client.net.connection import Connection
from evenq.client.net.session import Session
from evenq.client.read.pull import PullCommands, Pulled, pulled
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.protocol.command import Command
from evenq.protocol.filters import EVERYTHING, TAG

__all__ = ["Flight", "Launcher", "abandon"]

# Requests on one connection, over all queues, beyond which a queue with two pulls in flight sends no more.
CROWDED = 256


class Flight(msgspec.Struct, frozen=True):
    """A pull that was sent for the offsets from ``start`` up to, not including, ``stop``."""

    start: int
    stop: int
    answer: asyncio.Future[Command]
    address: str

    async def landed(self) -> Pulled:
        """What the pull brought."""
        return pulled(self.address, await self.answer)


def abandon(flights: Iterable[Flight]) -> None:
    """Nobody waits for these any more."""
    for flight in flights:
        # a future that failed and that nobody looked at would be reported as forgotten
        _ = flight.answer.cancel() or flight.answer.exception()


class Launcher:
    """Sends the pulls of one queue over the connections of a session."""

    def __init__(
        self,
        session: Session,
        group: str,
        queue: MessageQueue,
        *,
        expression: str = EVERYTHING,
        expression_type: str = TAG,
    ) -> None:
        self._session = session
        self._queue = queue
        self._commands = PullCommands(group, queue, expression, expression_type, hold=session.timeouts.hold)
        self._connection: Connection | None = None

    @property
    def crowded(self) -> bool:
        """Whether so much is in flight to the broker that more would only take memory."""
        return self._connection is not None and self._connection.in_flight >= CROWDED

    async def launch(self, start: int, stop: int, *, held: bool = False) -> Flight:
        """Ask for the offsets. A connection that cannot be made is a flight that fails, as one that breaks is."""
        session, queue = self._session, self._queue
        address = queue.broker
        try:
            route = session.routes.known(queue.topic) or await session.routes.get(queue.topic)
            address = route.address(queue.broker)
            connection = session.connections.live(address) or await session.connections.get(address)
            self._connection = connection
        except RemoteError as error:
            failed: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return Flight(start, stop, failed, address)
        timeout = session.timeouts.pull + (session.timeouts.hold if held else 0)
        return Flight(start, stop, connection.post(self._commands.at(start, stop - start, held=held), timeout), address)
