"""Reading a held queue for its listener: what comes is unpacked and waits in the holding, until that is dropped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing

from evenq.client.consume.holding import Holding
from evenq.client.consume.stats import Stats
from evenq.client.net.session import Session
from evenq.client.read.following import Follower
from evenq.client.read.reading import Chunk, Pace
from evenq.client.read.unpacking import as_messages
from evenq.errors import ProtocolError
from evenq.protocol.bodies import Subscription

__all__ = ["QueueReader"]

log = logging.getLogger(__name__)

# Seconds before an answer that cannot be read is asked for again.
UNREADABLE_PAUSE = 3.0


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

    async def read(self, holding: Holding) -> None:
        """Until the task is cancelled, which is what a drop does."""
        while True:
            try:
                await self._follow(holding)
            except ProtocolError:
                log.exception("%s at %d cannot be read", holding.queue, holding.progress.next_offset)
            await asyncio.sleep(UNREADABLE_PAUSE)

    async def _follow(self, holding: Holding) -> None:
        queue = holding.queue

        def alive() -> None:
            holding.pulled_at = self._clock()

        follower = Follower(
            self._session,
            self._group,
            queue,
            holding.progress.next_offset,
            subscription=lambda: self._subscription(queue.topic),
            pace=self._paces.setdefault(queue.broker, Pace()),
            room=lambda: holding.space,
            alive=alive,
        )
        async with aclosing(follower.chunks()) as chunks:
            async for chunk in chunks:
                self._accept(holding, chunk)
                if not holding.room.is_set():
                    await holding.room.wait()

    def _accept(self, holding: Holding, chunk: Chunk) -> None:
        if chunk.start != holding.progress.next_offset:
            holding.jump(chunk.start)
        messages = as_messages(chunk, self._tags)
        holding.add(messages, chunk.stop)
        if messages:
            self._stats.pulled(holding.queue.topic, len(messages))
            self._arrived(holding)

    def _tags(self, topic: str) -> set[str]:
        return self._subscription(topic).tags_set
