"""Reading ranges of offsets: pulls that overlap, answers in order, nothing assumed about what a broker gives.

A range is cut into segments of about as many offsets as one pull brings, and several segments are asked for at once.
What comes is checked against what was asked: a segment that is not yet whole is asked for again from where the answer
ended, records beyond it are cut off. So every offset is read once, in order, however the estimate turns out; it only
decides how fast.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from evenq.client.net.session import Session
from evenq.client.read.flight import Flight, Flights, Launcher
from evenq.client.read.pull import Pulled
from evenq.client.read.ranges import QueueRange
from evenq.errors import ConnectError, OffsetsLost, ProtocolError, RefusedError, RequestTimeout
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING, TAG
from evenq.protocol.records import QUEUE_OFFSET_AT, is_batch, split_records

__all__ = ["Chunk", "Pace", "RangeReader", "in_batches", "raise_loss", "with_more"]

# What one pull asks for at most, in offsets and in bytes: larger answers are not faster, and each is held thrice
# while it is taken apart.
MOST = 4096
MOST_BYTES = 1024 * 1024
# Segments that are asked for at once, and the bytes that their answers may have together.
WINDOW = 64
BUDGET = 8 * 1024 * 1024
# Bytes from which on a chunk is not joined with those behind it.
TOGETHER = 64 * 1024
# Every so many segments one tries for twice as many: a broker that was short of memory may give more by now.
PROBE_EVERY = 256
# Seconds before each new try of a pull that got no answer.
PAUSES = (0.05, 0.5, 2.0)

_OFFSET = struct.Struct(">q")


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The records of some offsets of a queue, as the broker sent them: all that were wanted, none beyond ``stop``.

    A batch that the broker stored as one record is not cut: at either end it may hold messages of other offsets,
    which whoever takes it apart leaves out.
    """

    queue: MessageQueue
    start: int
    stop: int
    body: bytes

    def __repr__(self) -> str:
        # without the body: asyncio makes texts of what tasks return, and it may have megabytes
        return f"Chunk({self.queue}, {self.start}, {self.stop}, {len(self.body)} bytes)"

    def __len__(self) -> int:
        """How many offsets it covers: at least as many as it has records."""
        return self.stop - self.start

    def first(self, count: int) -> Chunk:
        """The first so many messages."""
        starts = split_records(self.body, count + 1)
        if any(is_batch(self.body, at) for at in starts[:count]):
            return self.up_to(self.start + count)
        if count >= len(starts):
            return self
        at = starts[count]
        return Chunk(self.queue, self.start, _offset_at(self.body, at), self.body[:at])

    def up_to(self, stop: int) -> Chunk:
        """What lies before ``stop``."""
        if stop >= self.stop:
            return self
        starts = split_records(self.body)
        return Chunk(self.queue, self.start, stop, self.body[: self._at(starts, self._find(starts, stop))])

    def since(self, start: int) -> Chunk:
        """What lies at ``start`` and behind it."""
        if start <= self.start:
            return self
        # there are at least as many offsets as records before it
        starts = split_records(self.body, start - self.start + 1)
        found = self._find(starts, start)
        if found and is_batch(self.body, starts[found - 1]):
            # it may reach up to there
            found -= 1
        return Chunk(self.queue, start, self.stop, self.body[self._at(starts, found) :])

    def _find(self, starts: Sequence[int], offset: int) -> int:
        """Which record is the first that has this offset or a later one: records are in order."""
        return bisect_left(starts, offset, key=lambda at: _offset_at(self.body, at))

    def _at(self, starts: Sequence[int], found: int) -> int:
        return starts[found] if found < len(starts) else len(self.body)


def _offset_at(body: bytes, at: int) -> int:
    """The queue offset of the record that begins there."""
    offset: int = _OFFSET.unpack_from(body, at + QUEUE_OFFSET_AT)[0]
    return offset


class Pace:
    """How many offsets of one broker to ask for in a pull, learned from its answers.

    A real broker gives 32 messages, or fewer where they are large or no longer in memory; the embedded one gives what
    is asked for. The first short answer tells which it is.

    >>> pace = Pace()
    >>> pace.learn(asked=4096, covered=32, size=8000)
    >>> pace.cut(0, 1000, 2), pace.window
    ([(0, 32), (32, 64)], 64)
    """

    __slots__ = ("_asked", "_learned", "_weight", "known", "span")

    def __init__(self) -> None:
        self.span = MOST
        # whether there was any answer yet: until then one pull at a time
        self.known = False
        self._learned = False
        # bytes that an offset brings: rises at once, falls slowly, since a window that is too wide costs memory
        self._weight = 0.0
        self._asked = 0

    @property
    def window(self) -> int:
        """How many segments to ask for at once."""
        if not self.known:
            return 1
        return max(2, min(WINDOW, int(BUDGET / (1 + self._weight * self.span))))

    def cut(self, start: int, stop: int, most: int, before: int | None = None) -> list[tuple[int, int]]:
        """Up to ``most`` segments of the offsets from ``start`` to ``stop``; none begins at ``before`` or behind."""
        last = stop if before is None else min(stop, before)
        spans: list[tuple[int, int]] = []
        while len(spans) < most and start < last:
            self._asked += 1
            end = min(stop, start + (self.span if self._asked % PROBE_EVERY else min(MOST, self.span * 2)))
            spans.append((start, end))
            start = end
        return spans

    def learn(self, asked: int, covered: int, size: int) -> None:
        """An answer of ``size`` bytes covered so many of the offsets asked for."""
        self.known = True
        self._weight = max(size / covered, self._weight * 0.9)
        if covered >= asked:
            self.span = max(self.span, min(asked, MOST))
        else:
            # later on one large message among small ones must not bring the pace down to itself
            self.span = max(covered, self.span // 2) if self._learned else covered
            self._learned = True


def in_batches(flight: Flight, came: Pulled) -> bool:
    """Whether an answer shows that the broker stores batches of this topic as one record each.

    Where they end nobody can tell, and one that was asked for at two of its offsets comes twice: such a queue is asked
    for one thing at a time.
    """
    return came.next_offset > flight.stop and bool(came.body) and is_batch(came.body, 0)


def raise_loss(loss: OffsetsLost) -> None:
    raise loss


def with_more(chunk: Chunk, came: Pulled, flights: Flights, learn: Callable[[Flight, Pulled], None]) -> Chunk:
    """The chunk of an answer together with what has come behind it meanwhile: passing one on costs the same, whatever
    is in it.

    Only whole answers are added, and to whole ones only: where one was cut, the next may begin with the same batch.
    All others are left where they are, to be looked at one by one.
    """
    if not chunk.body or chunk.stop < came.next_offset:
        return chunk
    bodies, last = flights.take_whole(chunk.queue, chunk.stop, TOGETHER - len(chunk.body))
    if last is None:
        return chunk
    # one that is much larger than the others is always the last
    learn(last, last.brought())
    return Chunk(chunk.queue, chunk.start, last.stop, b"".join((chunk.body, *bodies)))


class RangeReader:
    """Reads ranges over the connections of a session.

    ``on_loss`` hears of offsets that the broker no longer holds. It raises (the default), or returns to go on behind
    them. With an ``expression`` the broker leaves out what does not match; tags it compares by their hash only, so
    the caller looks again.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        expression: str = EVERYTHING,
        expression_type: str = TAG,
        on_loss: Callable[[OffsetsLost], None] = raise_loss,
    ) -> None:
        self._session = session
        self._group = group
        self._expression = expression
        self._expression_type = expression_type
        self._on_loss = on_loss
        self._paces: dict[str, Pace] = {}
        self._flights = Flights()
        self._launchers: dict[MessageQueue, Launcher] = {}
        # the topics whose batches are stored as one
        self._batched: set[str] = set()

    async def read(self, ranges: Iterable[QueueRange]) -> AsyncGenerator[Chunk, None]:
        """All records of the ranges, range after range, offset after offset.

        What is in flight or waits here is bounded: the iterator asks for more only when it is asked for more.
        """
        todo = deque(part for part in ranges if part)
        flights = self._flights
        try:
            while todo or flights:
                await self._launch_more(todo)
                flight = await flights.landed()
                queue, stop = flight.queue, flight.stop
                came = await self._answer(flight)
                chunk = self._accept(flight, came)
                if chunk.stop < stop and flights:
                    flights.add_first(await self._launch(queue, chunk.stop, stop))
                elif chunk.stop < stop:
                    # nothing behind it was asked for yet, so it can be cut anew by what was learned
                    todo.appendleft(QueueRange(queue, chunk.stop, stop))
                if chunk.body:
                    yield with_more(chunk, came, flights, self._learn)
        finally:
            flights.abandon()

    def _pace(self, queue: MessageQueue) -> Pace:
        pace = self._paces.get(queue.broker)
        if pace is None:
            pace = self._paces[queue.broker] = Pace()
        return pace

    async def _launch_more(self, todo: deque[QueueRange]) -> None:
        """Ask for the next segments of what is to be read, as many as may be on their way."""
        while todo:
            part = todo[0]
            pace = self._pace(part.queue)
            if part.queue.topic in self._batched:
                spans = [] if self._flights else [(part.start, min(part.stop, part.start + MOST))]
            else:
                spans = pace.cut(part.start, part.stop, pace.window - len(self._flights))
            start = spans[-1][1] if spans else part.start
            launcher = self._launcher(part.queue)
            if spans and launcher.ready:
                self._flights.add(launcher.send(spans))
            else:
                self._flights.add([await launcher.launch(*span) for span in spans])
            if start < part.stop:
                todo[0] = QueueRange(part.queue, start, part.stop)
                return
            todo.popleft()

    async def _launch(self, queue: MessageQueue, start: int, stop: int) -> Flight:
        return await self._launcher(queue).launch(start, stop)

    def _launcher(self, queue: MessageQueue) -> Launcher:
        launcher = self._launchers.get(queue)
        if launcher is None:
            launcher = self._launchers[queue] = Launcher(
                self._session,
                self._group,
                queue,
                self._flights,
                expression=self._expression,
                expression_type=self._expression_type,
            )
        return launcher

    async def _answer(self, flight: Flight) -> Pulled:
        """What a pull brought that has landed. One that got no answer is sent again, after a pause and by a fresh
        route."""
        for pause in PAUSES:
            try:
                return self._brought(flight)
            except (ConnectError, RequestTimeout):
                await asyncio.sleep(pause)
            with suppress(ConnectError, RequestTimeout):
                await self._session.routes.refresh(flight.queue.topic)
            self._flights.add_first(await self._launch(flight.queue, flight.start, flight.stop))
            flight = await self._flights.landed()
        return self._brought(flight)

    def _brought(self, flight: Flight) -> Pulled:
        """What a pull brought. Where a slave refuses it or has nothing, that is no answer: its master may have it."""
        if flight.to_master:
            return flight.brought()
        try:
            came = flight.brought()
        except RefusedError as error:
            raise ConnectError(flight.address, f"a slave, and it does not serve {flight.queue}: {error}") from None
        if not came.body and came.next_offset <= flight.start:
            held = f"it holds {came.min_offset} up to {came.max_offset}"
            raise ConnectError(flight.address, f"a slave that has no offset {flight.start} of {flight.queue} ({held})")
        return came

    def _accept(self, flight: Flight, came: Pulled) -> Chunk:
        """Check an answer against what was asked, and cut it to that."""
        queue, start, stop = flight.queue, flight.start, flight.stop
        filtered = self._expression != EVERYTHING
        if came.moved or (not came.body and not (filtered and came.next_offset > start)):
            end = min(came.next_offset, stop) if came.next_offset > start else stop
            self._on_loss(OffsetsLost(queue, start, end, came.min_offset, came.max_offset))
            return Chunk(queue, start, end, b"")
        if came.next_offset <= start:
            raise ProtocolError(f"{queue} at {start}: the broker sent records and says to go on at {came.next_offset}")
        self._learn(flight, came)
        return Chunk(queue, start, came.next_offset, came.body).up_to(stop)

    def _learn(self, flight: Flight, came: Pulled) -> None:
        if in_batches(flight, came):
            self._batched.add(flight.queue.topic)
        self._pace(flight.queue).learn(flight.stop - flight.start, came.next_offset - flight.start, len(came.body))
