"""Where the offsets of a group are kept: by the brokers for the whole group, or in a file for one member."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Protocol

from evenq.client.group.held import Held
from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start, Starts
from evenq.client.net.session import Session
from evenq.model import MessageQueue

__all__ = ["BrokerOffsets", "Offsets", "commit", "commit_all"]

log = logging.getLogger(__name__)


class Offsets(Protocol):
    """Keeps offsets. ``until_still``: others may still be storing theirs, wait until they stop."""

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        """Where to begin; a queue of which that cannot be known now is left out."""
        ...

    async def store(self, queue: MessageQueue, offset: int) -> None: ...


class BrokerOffsets:
    """Kept by the brokers, for all members of the group."""

    def __init__(self, session: Session, group: str, point: StartingPoint) -> None:
        self._session = session
        self._group = group
        self._starts = Starts(session, group, point)

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        return await self._starts.find(queues, until_still=until_still)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """Returns when the broker has it."""
        address = self._session.routes.address_of(queue)
        await self._session.remote.commit(address, self._group, queue, offset)


async def commit(offsets: Offsets, held: Held) -> None:
    """Store how far a queue is, never backwards, and wait until that is done.

    One commit of a queue at a time: a broker handles requests side by side, and of two under way the lower might be
    stored last.
    """
    async with held.committing:
        epoch, offset = held.epoch, held.committable
        if offset > held.committed:
            await offsets.store(held.queue, offset)
            if held.epoch == epoch:
                # else the queue was reset meanwhile, and what the reset says of the stored offset holds
                held.committed = offset


async def commit_all(offsets: Offsets, holdings: Iterable[Held]) -> None:
    """The same for many. What fails is logged, and tried again the next time."""
    outcomes = await asyncio.gather(*(commit(offsets, held) for held in holdings), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            log.warning("an offset was not committed: %s", outcome)
