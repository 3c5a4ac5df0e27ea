"""Reading a held queue for its listener: what comes is unpacked and waits in the holding, until that is dropped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial

from evenq.client.consume.holding import Holding
from evenq.client.consume.stats import Stats
from evenq.client.net.session import Session
from evenq.client.read.following import Follower
from evenq.client.read.reading import Chunk, Pace
from evenq.client.read.unpacking import UNREADABLE_PAUSE, Unread
from evenq.errors import ProtocolError
from evenq.protocol.bodies import Subscription

__all__ = ["QueueReader"]

log = logging.getLogger(__name__)


class QueueReader:
    """Reads held queues of one group. ``arrived`` is called when messages wait in a holding."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscription: Callable[[str], Subscription],
        arrived: Callable[[Holding], None],
        stats: Stats,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._group = group
        self._subscription = subscription
        self._arrived = arrived
        self._stats = stats
        self._clock = clock
        self._paces: dict[str, Pace] = {}

    def start(self, holding: Holding) -> None:
        """Read a queue from where its holding stands, until that is dropped."""
        holding.pulled_at = self._clock()
        holding.unreadable = partial(self._again, holding)
        holding.reader = self._session.spawn(self._read(holding))

    def _again(self, holding: Holding, error: ProtocolError) -> None:
        """What came cannot be unpacked: ask for it once more, later."""
        _report(holding, error)
        if holding.reader is not None:
            holding.reader.cancel()
        holding.reader = self._session.spawn(self._read(holding, UNREADABLE_PAUSE))

    async def _read(self, holding: Holding, pause: float = 0.0) -> None:
        await asyncio.sleep(pause)

        async def step() -> None:
            try:
                await self._follow(holding)
            except ProtocolError as error:
                _report(holding, error)
                await asyncio.sleep(UNREADABLE_PAUSE)

        await self._session.repeat(step, f"reading of {holding.queue}")

    async def _follow(self, holding: Holding) -> None:
        queue = holding.queue

        def alive() -> None:
            holding.pulled_at = self._clock()

        follower = Follower(
            self._session,
            self._group,
            queue,
            holding.next_offset,
            subscription=lambda: self._subscription(queue.topic),
            pace=self._paces.setdefault(queue.broker, Pace()),
            room=lambda: holding.space,
            most=lambda: holding.limits.messages,
            alive=alive,
        )
        async with aclosing(follower.chunks()) as chunks:
            async for chunk in chunks:
                self._accept(holding, chunk)
                # a handler in the loop begins before the next pull leaves, not after it
                await asyncio.sleep(0)
                if not holding.room.is_set():
                    await holding.room.wait()

    def _accept(self, holding: Holding, chunk: Chunk) -> None:
        holding.add(Unread(chunk, self._tags, partial(self._stats.pulled, holding.queue.topic)))
        self._arrived(holding)

    def _tags(self, topic: str) -> set[str]:
        return self._subscription(topic).tags_set


def _report(holding: Holding, error: ProtocolError) -> None:
    log.error("%s at %d cannot be read", holding.queue, holding.next_offset, exc_info=error)
