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
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from evenq.client.net.session import Session
from evenq.client.read.flight import Flight, Launcher, abandon
from evenq.client.read.pull import Pulled
from evenq.errors import ConnectError, OffsetsLost, ProtocolError, RequestTimeout
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING, TAG
from evenq.protocol.records import QUEUE_OFFSET_AT, split_records

__all__ = ["Chunk", "Pace", "QueueRange", "RangeReader", "raise_loss"]

# What one pull asks for at most, in offsets and in bytes: larger answers are not faster, and each is held thrice
# while it is taken apart.
MOST = 4096
MOST_BYTES = 1024 * 1024
# Segments that are asked for at once, and the bytes that their answers may have together.
WINDOW = 64
BUDGET = 8 * 1024 * 1024
# Every so many segments one tries for twice as many: a broker that was short of memory may give more by now.
PROBE_EVERY = 256
# Seconds before each new try of a pull that got no answer.
PAUSES = (0.05, 0.5, 2.0)

_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets of one queue from ``start`` up to, not including, ``stop``.

    >>> len(QueueRange(MessageQueue("orders", "broker-a", 0), 10, 15))
    5
    """

    queue: MessageQueue
    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The records of some offsets of a queue, as the broker sent them: all that were wanted, none beyond ``stop``."""

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
        """The first so many records."""
        starts = split_records(self.body)
        return self if count >= len(starts) else self.up_to(_offset_at(self.body, starts[count]))

    def up_to(self, stop: int) -> Chunk:
        """What lies before ``stop``."""
        return self if stop >= self.stop else Chunk(self.queue, self.start, stop, self.body[: self._at(stop)])

    def since(self, start: int) -> Chunk:
        """What lies at ``start`` and behind it."""
        return self if start <= self.start else Chunk(self.queue, start, self.stop, self.body[self._at(start) :])

    def _at(self, offset: int) -> int:
        """Where the first record begins that has this offset or a later one; records are in order."""
        body = self.body
        starts = split_records(body)
        found = bisect_left(starts, offset, key=lambda at: _offset_at(body, at))
        return starts[found] if found < len(starts) else len(body)


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
    >>> pace.next_span(), pace.window
    (32, 64)
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

    def next_span(self) -> int:
        self._asked += 1
        return min(MOST, self.span * 2) if self._asked % PROBE_EVERY == 0 else self.span

    @property
    def window(self) -> int:
        """How many segments to ask for at once."""
        if not self.known:
            return 1
        return max(2, min(WINDOW, int(BUDGET / (1 + self._weight * self.span))))

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


def raise_loss(loss: OffsetsLost) -> None:
    raise loss


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
        self._launchers: dict[MessageQueue, Launcher] = {}

    async def read(self, ranges: Iterable[QueueRange]) -> AsyncGenerator[Chunk, None]:
        """All records of the ranges, range after range, offset after offset.

        What is in flight or waits here is bounded: the iterator asks for more only when it is asked for more.
        """
        todo = deque(part for part in ranges if part)
        flying: deque[tuple[MessageQueue, Flight]] = deque()
        try:
            while todo or flying:
                while todo and len(flying) < self._pace(todo[0].queue).window:
                    flying.append(await self._launch(self._cut(todo)))
                queue, flight = flying.popleft()
                segment = QueueRange(queue, flight.start, flight.stop)
                chunk = self._accept(segment, await self._answer(queue, flight))
                rest = QueueRange(queue, chunk.stop, segment.stop)
                if rest and flying:
                    flying.appendleft(await self._launch(rest))
                elif rest:
                    # nothing behind it was asked for yet, so it can be cut anew by what was learned
                    todo.appendleft(rest)
                if chunk.body:
                    yield chunk
        finally:
            abandon(flight for _, flight in flying)

    def _pace(self, queue: MessageQueue) -> Pace:
        return self._paces.setdefault(queue.broker, Pace())

    def _cut(self, todo: deque[QueueRange]) -> QueueRange:
        """Take the next segment off the ranges that are left."""
        part = todo.popleft()
        stop = min(part.stop, part.start + self._pace(part.queue).next_span())
        if stop < part.stop:
            todo.appendleft(QueueRange(part.queue, stop, part.stop))
        return QueueRange(part.queue, part.start, stop)

    async def _launch(self, segment: QueueRange) -> tuple[MessageQueue, Flight]:
        queue = segment.queue
        launcher = self._launchers.get(queue)
        if launcher is None:
            launcher = self._launchers[queue] = Launcher(
                self._session, self._group, queue, expression=self._expression, expression_type=self._expression_type
            )
        return queue, await launcher.launch(segment.start, segment.stop)

    async def _answer(self, queue: MessageQueue, flight: Flight) -> Pulled:
        """What the pull brought. One that got no answer is sent again, after a pause and by a fresh route."""
        pauses = iter(PAUSES)
        while True:
            try:
                return await flight.landed()
            except (ConnectError, RequestTimeout):
                pause = next(pauses, None)
                if pause is None:
                    raise
            await asyncio.sleep(pause)
            with suppress(ConnectError, RequestTimeout):
                await self._session.routes.refresh(queue.topic)
            _, flight = await self._launch(QueueRange(queue, flight.start, flight.stop))

    def _accept(self, segment: QueueRange, came: Pulled) -> Chunk:
        """Check an answer against what was asked, and cut it to that."""
        queue, start, stop = segment.queue, segment.start, segment.stop
        filtered = self._expression != EVERYTHING
        if came.moved or (not came.body and not (filtered and came.next_offset > start)):
            end = min(came.next_offset, stop) if came.next_offset > start else stop
            self._on_loss(OffsetsLost(queue, start, end, came.min_offset, came.max_offset))
            return Chunk(queue, start, end, b"")
        if came.next_offset <= start:
            raise ProtocolError(f"{queue} at {start}: the broker sent records and says to go on at {came.next_offset}")
        self._pace(queue).learn(len(segment), came.next_offset - start, len(came.body))
        return Chunk(queue, start, came.next_offset, came.body).up_to(stop)
