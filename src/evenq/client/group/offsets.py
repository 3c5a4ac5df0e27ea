"""Where the offsets of a group are kept: by the brokers for the whole group, or in a file for one member."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Protocol

from evenq.client.group.held import Held
from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start, Starts
from evenq.client.net.connection import Connection
from evenq.client.net.session import Session
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from evenq.supervision import Outages

__all__ = ["BrokerOffsets", "Offsets", "commit", "commit_all"]

# Seconds after which a broker is asked whether it still has an offset that does not change.
CHECK_STORED_S = 30.0


class Offsets(Protocol):
    """Keeps offsets. ``until_still``: others may still be storing theirs, wait until they stop."""

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        """Where to begin; a queue of which that cannot be known now is left out."""
        ...

    async def store(self, queue: MessageQueue, offset: int) -> None: ...

    def may_be_lost(self, queue: MessageQueue) -> bool:
        """Whether the offset that was stored last may not be there any more, so that it should be stored again."""
        ...

    async def store_again(self, queue: MessageQueue, offset: int) -> int:
        """Store an offset that may be lost, unless the broker has a higher one; what it has then."""
        ...


class BrokerOffsets:
    """Kept by the brokers, for all members of the group.

    A broker writes offsets to disk every few seconds, so one that is killed loses those of the last seconds. A broker
    that was connected to anew, or that took the place of another, is therefore told every offset once more. A proxy
    hides all that behind one connection, so offsets that stay the same are also checked now and then.

    An offset that is stored again never replaces a higher one: the group was reset, or another member went on.
    """

    def __init__(self, session: Session, group: str, point: StartingPoint) -> None:
        self._session = session
        self._group = group
        self._starts = Starts(session, group, point)
        # the connection by which the offset of a queue was stored or found last, and when
        self._stored: dict[MessageQueue, tuple[Connection, float]] = {}

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        for queue in queues:
            self._stored.pop(queue, None)
        return await self._starts.find(queues, until_still=until_still)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """Returns when the broker has it."""
        address = self._session.routes.address_of(queue)
        # before the request: what a connection that breaks meanwhile has stored may be lost
        connection = await self._session.connections.get(address)
        await self._session.remote.commit(address, self._group, queue, offset)
        self._stored[queue] = connection, time.monotonic()

    def may_be_lost(self, queue: MessageQueue) -> bool:
        with suppress(ConnectError):
            connection = self._session.connections.live(self._session.routes.address_of(queue))
            if connection is not None:
                now = time.monotonic()
                by, at = self._stored.setdefault(queue, (connection, now))
                return by is not connection or now - at >= CHECK_STORED_S
        return False

    async def store_again(self, queue: MessageQueue, offset: int) -> int:
        address = self._session.routes.address_of(queue)
        connection = await self._session.connections.get(address)
        stored = await self._session.remote.stored_offset(address, self._group, queue, never_guess=True)
        if stored is None or stored < offset:
            await self.store(queue, offset)
            return offset
        self._stored[queue] = connection, time.monotonic()
        return stored


async def commit(offsets: Offsets, held: Held) -> None:
    """Store how far a queue is, never backwards, and wait until that is done. An offset that the broker may have lost
    is stored again.

    One commit of a queue at a time: a broker handles requests side by side, and of two under way the lower might be
    stored last. Nothing is committed while the lease does not count: another member may hold the queue and be further
    on.
    """
    async with held.committing:
        if not held.lease.counts():
            raise ConnectError(held.queue.broker, f"the lock on {held.queue} ended with the connection to its broker")
        epoch, offset = held.epoch, held.committable
        if offset > held.committed:
            await offsets.store(held.queue, offset)
            stored = offset
        elif held.committed >= 0 and offsets.may_be_lost(held.queue):
            stored = await offsets.store_again(held.queue, offset)
        else:
            return
        if held.epoch == epoch:
            # else the queue was reset meanwhile, and what the reset says of the stored offset holds
            held.committed = max(stored, offset)


async def commit_all(offsets: Offsets, holdings: Iterable[Held], group: str, outages: Outages) -> None:
    """The same for those whose leases count. What fails is logged, and tried again the next time."""
    queues = [held for held in holdings if held.lease.counts()]
    outcomes = await asyncio.gather(*(commit(offsets, held) for held in queues), return_exceptions=True)
    for held, outcome in zip(queues, outcomes, strict=True):
        name = f"commit of {held.queue} for group {group}"
        if isinstance(outcome, Exception):
            outages.failed(name, outcome)
        elif outcome is None:
            outages.ended(name)
