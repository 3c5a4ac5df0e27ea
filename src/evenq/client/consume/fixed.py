"""Queues assigned by hand: no group shares them out, no lock guards them; only their offsets are the group's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Generic

from evenq.client.group.held import H
from evenq.client.group.offsets import BrokerOffsets, Offsets, commit, commit_all
from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start
from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.model import MessageQueue

__all__ = ["FixedQueues"]

log = logging.getLogger(__name__)

# A queue whose offset cannot be read now is tried again after so many seconds.
AGAIN = 1.0


class FixedQueues(Generic[H]):
    """Holds exactly the queues it was told to. ``hold``, ``started``, ``ended`` and ``offsets`` are as for a member."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        begin: str | datetime,
        hold: Callable[[MessageQueue, Start], H],
        started: Callable[[H], None],
        ended: Callable[[], None] = lambda: None,
        offsets: Offsets | None = None,
    ) -> None:
        self._session = session
        self._group = group
        self._offsets = offsets or BrokerOffsets(session, group, StartingPoint.of(begin))
        self._hold = hold
        self._started = started
        self._ended = ended
        self._wanted: set[MessageQueue] = set()
        self._held: dict[MessageQueue, H] = {}
        self._changed = asyncio.Event()

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._held)

    @property
    def holdings(self) -> list[H]:
        return list(self._held.values())

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """These from now on, and no others."""
        self._wanted = set(queues)
        self._changed.set()

    async def join(self) -> None:
        """Begin. Returns when it is known where to, of the queues that answer."""
        await self._adjust()
        session = self._session
        session.spawn(session.repeat(self._wait_and_adjust, "taking of assigned queues"))
        session.spawn(session.every(session.intervals.commit, self.commit_all, "commits of assigned queues"))

    async def leave(self) -> None:
        await asyncio.gather(*map(self._let_go, self.queues))

    async def commit(self, holding: H) -> None:
        await commit(self._offsets, holding)

    async def commit_all(self) -> None:
        await commit_all(self._offsets, self.holdings, self._group, self._session.outages)

    async def _wait_and_adjust(self) -> None:
        try:
            async with asyncio.timeout(AGAIN if self._wanted != self._held.keys() else None):
                await self._changed.wait()
        except TimeoutError:
            pass
        await self._adjust()

    async def _adjust(self) -> None:
        self._changed.clear()
        await asyncio.gather(*map(self._let_go, self._held.keys() - self._wanted))
        missing = self._wanted - self._held.keys()
        for topic in {queue.topic for queue in missing}:
            try:
                await self._session.routes.get(topic)
            except RemoteError as error:
                log.warning("topic %s cannot be read yet: %s", topic, error)
        for queue, start in (await self._offsets.find(missing, until_still=False)).items():
            if queue in self._wanted:
                self._held[queue] = holding = self._hold(queue, start)
                self._started(holding)

    async def _let_go(self, queue: MessageQueue) -> None:
        holding = self._held.pop(queue)
        self._ended()
        holding.drop()
        await holding.drained(self._session.timeouts.drain)
        try:
            await self.commit(holding)
        except RemoteError as error:
            log.warning("the last offset of %s was not committed: %s", queue, error)
