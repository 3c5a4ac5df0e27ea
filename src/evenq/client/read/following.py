"""Following a queue: every message from an offset on, for ever, as chunks of records.

Up to where the queue is known to reach, several pulls are in flight at the offsets that must come next. At its end a
single one waits at the broker for what comes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from evenq.client.net.session import Session
from evenq.client.read.flight import Flight, Flights, Launcher
from evenq.client.read.pull import Pulled
from evenq.client.read.reading import MOST, Chunk, Pace, in_batches, with_more
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.protocol.bodies import Subscription

__all__ = ["Follower"]

log = logging.getLogger(__name__)

# Seconds before a pull that failed is sent again: twice as long each time, up to the last.
FIRST_PAUSE = 0.1
LAST_PAUSE = 3.0
# A broker that answers at once that there is nothing, though it may wait, is asked again after so long.
EMPTY_PAUSE = 0.1
# What a pull may ask for however low the limits are: Java's brokers give as many at the most.
LEAST = 32


class Follower:
    """Reads one queue of a topic from ``offset`` on.

    ``room`` says how many more offsets may be asked for now, beside the one pull that is always allowed. No pull asks
    for more than ``most`` says, or for ``LEAST`` if that is less. ``pace`` is shared by all who read from the same
    broker. ``alive`` is called whenever pulls are sent.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        subscription: Callable[[], Subscription],
        pace: Pace,
        room: Callable[[], int],
        most: Callable[[], int] = lambda: MOST,
        alive: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._group = group
        self._queue = queue
        self._subscription = subscription
        self._pace = pace
        self._room = room
        self._most = most
        self._alive = alive
        self._clock = clock
        # when a pull was last sent that may wait at the broker
        self._asked_at = 0.0
        self._flights = Flights()
        self._launcher = self._make_launcher(subscription())
        # the offset that the next new pull asks for, and the first one that the queue is not known to have
        self._next = offset
        self._end = offset
        self._batched = False

    @property
    def end(self) -> int:
        """The first offset that the queue is not known to have."""
        return self._end

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """What the queue holds, chunk after chunk, without a gap: each begins where the one before ended.

        The one exception is an offset that the queue does not hold: then comes an empty chunk that lies where the
        broker says to go on, which may be further back. A chunk is also empty where a filter let nothing through.
        """
        pause = FIRST_PAUSE
        name = f"pull from {self._queue} for group {self._group}"
        try:
            while True:
                self._alive()
                await self._launch()
                flight = await self._flights.landed()
                try:
                    came = flight.brought()
                except RemoteError as error:
                    self._session.outages.failed(name, error)
                    self._go_to(flight.start)
                    await self._recover(pause)
                    pause = min(LAST_PAUSE, pause * 2)
                    continue
                pause = FIRST_PAUSE
                self._session.outages.ended(name)
                chunk = await self._accept(flight, came)
                if chunk is not None:
                    yield with_more(chunk, came, self._flights, self._learn)
        finally:
            self._flights.abandon()

    async def _launch(self) -> None:
        """Send as many pulls as there is use and room for, or one that waits where nothing is known to be there."""
        wanted = self._subscription()
        if wanted is not self._wanted:
            self._launcher = self._make_launcher(wanted)
        launcher, flights, pace = self._launcher, self._flights, self._pace
        longest = min(MOST, max(LEAST, self._most()))
        if not flights:
            for start, stop in pace.cut(self._next, min(self._end, self._next + longest), 1):
                flights.add([await launcher.launch(start, stop)])
                self._next = stop
        if self._next < self._end and launcher.ready and not self._batched:
            most = min(pace.window - len(flights), max(launcher.room, 2 - len(flights)))
            before = flights.first.start + self._room()
            spans = pace.cut(self._next, min(self._end, before + longest), most, before=before)
            if spans:
                flights.add(launcher.send(spans))
                self._next = spans[-1][1]
        if not flights:
            self._asked_at = self._clock()
            flights.add([await launcher.launch(self._next, self._next + longest, held=True)])

    async def _accept(self, flight: Flight, came: Pulled) -> Chunk | None:
        """The chunk that an answer brings; None where it brings nothing, not even a new offset."""
        queue, start = self._queue, flight.start
        if came.moved:
            if came.min_offset <= start <= came.max_offset:
                log.info("%s: group %s was reset to offset %d", queue, self._group, came.next_offset)
            else:
                log.warning(
                    "%s has no offset %d (it holds %d to %d); going on at %d",
                    queue, start, came.min_offset, came.max_offset, came.next_offset,
                )  # fmt: skip
            self._go_to(came.next_offset)
            return Chunk(queue, came.next_offset, came.next_offset, b"")
        if came.next_offset <= start:
            self._go_to(start)
            await asyncio.sleep(max(0.0, self._asked_at + EMPTY_PAUSE - self._clock()))
            return None
        self._learn(flight, came)
        chunk = Chunk(queue, start, came.next_offset, came.body)
        if not self._flights:
            self._next = came.next_offset
            return chunk
        behind = self._flights.first.start
        if came.next_offset < behind:
            self._flights.add_first(await self._launcher.launch(came.next_offset, behind))
        return chunk.up_to(behind)

    def _learn(self, flight: Flight, came: Pulled) -> None:
        self._end = max(self._end, came.max_offset)
        self._batched |= in_batches(flight, came)
        if came.body and came.next_offset < came.max_offset:
            # at the end of the queue a small answer only says that there is no more
            self._pace.learn(flight.stop - flight.start, came.next_offset - flight.start, len(came.body))

    def _go_to(self, offset: int) -> None:
        """Forget what is in flight, and ask next for ``offset``."""
        self._flights.abandon()
        self._next = self._end = offset

    async def _recover(self, pause: float) -> None:
        await asyncio.sleep(pause)
        with suppress(RemoteError):
            await self._session.routes.refresh(self._queue.topic)

    def _make_launcher(self, wanted: Subscription) -> Launcher:
        self._wanted = wanted
        return Launcher(
            self._session,
            self._group,
            self._queue,
            self._flights,
            expression=wanted.sub_string,
            expression_type=wanted.expression_type,
        )
