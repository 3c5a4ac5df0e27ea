"""A queue that this member holds: what was pulled of it, what runs, and how it is given up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from evenq.client.consume.flow import RampUp
from evenq.client.consume.progress import Progress
from evenq.client.group.held import Cached, Lease
from evenq.client.read.unpacking import Unread
from evenq.client.settings import FlowControl
from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.protocol.view import MessageView

__all__ = ["Holding"]

# Messages that are unpacked at a time, where fewer are wanted.
PIECE = 32


def _raise(error: ProtocolError) -> None:
    raise error


class Holding:
    """One held queue, from the moment its offset is known until it is let go.

    Messages wait in the order of their offsets and are handed out in that order. So when the queue is dropped, what
    still waits lies after everything that was handed out: once the running listeners end, one offset says it all.
    """

    def __init__(self, queue: MessageQueue, start: int, limits: FlowControl, *, stored: bool = True) -> None:
        self.queue = queue
        self.progress = Progress(start)
        self.limits = limits
        # the highest offset that the broker has confirmed; commits never go below it. Where nothing was stored yet,
        # the start itself must be: whoever comes next would begin elsewhere
        self.committed = start if stored else -1
        # incremented by every reset: a commit that began before it says nothing of what is committed now
        self.epoch = 0
        self.lease = Lease()
        self.committing = asyncio.Lock()
        self.dropped = False
        self.paused = False
        # who pulls this queue, and when it was last heard of
        self.reader: asyncio.Task[None] | None = None
        self.pulled_at = 0.0
        self.consumed_at = 0.0
        # limits the calls of the handler while this queue is new
        self.ramp_up: RampUp | None = None
        # whether a dispatcher knows that messages wait here
        self.announced = False
        # what was pulled and not unpacked yet: it lies behind all of ``progress``
        self._unread: deque[Unread] = deque()
        # hears of answers that cannot be unpacked
        self.unreadable: Callable[[ProtocolError], None] = _raise
        self._running = 0
        # set while pulls may go on; cleared by flow control
        self.room = asyncio.Event()
        self.room.set()
        # set while no listener runs
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def committable(self) -> int:
        return self.progress.committable

    @property
    def in_hand(self) -> int:
        return self.progress.count

    @property
    def cached(self) -> Cached:
        progress = self.progress
        return Cached(self._count, progress.committable, self._last, progress.bytes + self._unread_bytes)

    @property
    def next_offset(self) -> int:
        """Where the next pull begins."""
        return self._unread[-1].stop if self._unread else self.progress.next_offset

    @property
    def waiting(self) -> bool:
        """Whether there may be messages to take."""
        return bool(self._unread) or self.progress.waiting > 0

    @property
    def space(self) -> int:
        """How many more offsets may be asked for."""
        progress, limits = self.progress, self.limits
        if progress.bytes + self._unread_bytes >= limits.bytes:
            return 0
        count = self._count
        span = self._last - progress.committable if count else 0
        return min(limits.messages - count, limits.span - span)

    def add(self, unread: Unread) -> None:
        """Take what a pull brought. What does not follow on the last one lies where the broker says to go on."""
        if self.dropped:
            return
        if unread.start < self.next_offset:
            # the broker does not hold what was to come, but what is further back
            self._unread.clear()
            self.progress = Progress(unread.start)
            self.epoch += 1
            self.committed = min(self.committed, unread.start)
        self._unread.append(unread)
        self._unpack(0)
        self._update_room()

    def reset(self, offset: int) -> None:
        """Go on at ``offset`` because somebody wants it so: what waits is forgotten, and that much is committed."""
        self._unread.clear()
        self.progress = Progress(offset)
        self.epoch += 1
        self.committed = -1
        self._update_room()

    def line_up(self) -> bool:
        """Whether messages wait that no dispatcher knows of. It does from now on, until ``announced`` is cleared."""
        news = not self.announced and self.waiting
        self.announced = self.announced or news
        return news

    def take(self, count: int) -> list[MessageView]:
        """The next messages for a listener, at most ``count``; none while it is paused, the lease does not count, or
        the queue is new and has as many calls as it may. Every batch taken must be finished.

        Whoever ends a batch gives this same list: a batch is known by its identity, for after a reset there may be
        another one with the same offsets.
        """
        if self.paused or not self.lease.counts():
            return []
        if self.ramp_up is not None and self.ramp_up.over and not self._running:
            self.ramp_up = None
        if self.ramp_up is not None and not self.ramp_up.begin(self):
            return []
        self._unpack(count)
        if not self.room.is_set():
            # there may be fewer of them than it seemed
            self._update_room()
        batch = self.progress.take(count)
        if batch:
            self._running += 1
            self._idle.clear()
        elif self.ramp_up is not None:
            self.ramp_up.end()
        return batch

    def finish(self, batch: Sequence[MessageView]) -> None:
        """A batch has ended: its messages are consumed or safely on their way back."""
        self.progress.done(batch)
        self.release()
        self._update_room()

    def take_back(self, batch: Sequence[MessageView], again: Sequence[MessageView] | None = None) -> None:
        """A batch has ended and comes first again, in the form of ``again`` if that is given."""
        self.progress.give_back(batch, again)
        if self.dropped:
            self.progress.forget()
        self.release()

    def release(self) -> None:
        """A batch has ended without an outcome: it stays unconsumed, and holds the commit where it is."""
        self._running -= 1
        if self._running == 0:
            self._idle.set()
        if self.ramp_up is not None:
            self.ramp_up.end()

    def limit(self, limits: FlowControl) -> None:
        """These limits hold from now on."""
        self.limits = limits
        self._update_room()

    def drop(self) -> None:
        """Hand out nothing more. What waits is forgotten here and will be read again by the next holder."""
        self.dropped = True
        if self.reader is not None:
            self.reader.cancel()
        self._unread.clear()
        self.progress.forget()
        self.room.set()

    async def drained(self, timeout: float) -> bool:
        """Wait for the listeners that are running; False when they took longer than ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _unpack(self, count: int) -> None:
        """Have at least ``count`` messages wait, if there are so many. Stretches without any are passed over."""
        progress, unread = self.progress, self._unread
        while unread and (progress.waiting < count or not unread[0].bytes):
            first = unread[0]
            try:
                messages = first.take(max(count, PIECE))
            except ProtocolError as error:
                unread.clear()
                self.unreadable(error)
                return
            progress.pulled(messages, first.next_offset)
            if not first.bytes:
                unread.popleft()

    @property
    def _count(self) -> int:
        return self.progress.count + sum(unread.count for unread in self._unread)

    @property
    def _unread_bytes(self) -> int:
        return sum(unread.bytes for unread in self._unread)

    @property
    def _last(self) -> int:
        """The highest offset in hand."""
        return next((unread.stop - 1 for unread in reversed(self._unread) if unread.bytes), self.progress.last)

    def _update_room(self) -> None:
        if self.space > 0 or self.dropped:
            self.room.set()
        else:
            self.room.clear()
