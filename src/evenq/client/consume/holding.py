"""A queue that this member holds: what was pulled of it, what runs, and how it is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from evenq.client.consume.progress import Progress
from evenq.client.group.held import Cached
from evenq.client.settings import FlowControl
from evenq.model import MessageQueue, MessageView

__all__ = ["Holding"]


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
        self.locked_at = 0.0
        self.committing = asyncio.Lock()
        self.dropped = False
        # who pulls this queue, and when it was last heard of
        self.reader: asyncio.Task[None] | None = None
        self.pulled_at = 0.0
        self.consumed_at = 0.0
        # whether a dispatcher knows that messages wait here
        self.announced = False
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
        return Cached(progress.count, progress.committable, progress.last, progress.bytes)

    @property
    def waiting(self) -> int:
        return self.progress.waiting

    @property
    def space(self) -> int:
        """How many more offsets may be asked for."""
        progress, limits = self.progress, self.limits
        if progress.bytes >= limits.bytes:
            return 0
        return min(limits.messages - progress.count, limits.span - progress.span)

    def add(self, messages: Sequence[MessageView], next_offset: int) -> None:
        """Take what a pull brought."""
        if not self.dropped:
            self.progress.pulled(messages, next_offset)
            self._update_room()

    def jump(self, offset: int) -> None:
        """Go on at ``offset``, which may be behind: the broker holds nothing at the one that was to come."""
        if offset >= self.progress.next_offset:
            self.progress.pulled((), offset)
        else:
            self.progress = Progress(offset)
            self.committed = min(self.committed, offset)

    def reset(self, offset: int) -> None:
        """Go on at ``offset`` because somebody wants it so: what waits is forgotten, and that much is committed."""
        self.progress = Progress(offset)
        self.committed = -1
        self._update_room()

    def take(self, count: int) -> list[MessageView]:
        """The next messages for a listener, at most ``count``. Every batch taken must be finished."""
        batch = self.progress.take(count)
        if batch:
            self._running += 1
            self._idle.clear()
        return batch

    def finish(self, batch: Sequence[MessageView]) -> None:
        """A batch has ended: its messages are consumed or safely on their way back."""
        self.progress.done(batch)
        self.release()
        self._update_room()

    def take_back(self, batch: Sequence[MessageView]) -> None:
        """A batch has ended and comes first again."""
        self.progress.give_back(batch)
        if self.dropped:
            self.progress.forget()
        self.release()

    def release(self) -> None:
        """A batch has ended without an outcome: it stays unconsumed, and holds the commit where it is."""
        self._running -= 1
        if self._running == 0:
            self._idle.set()

    def drop(self) -> None:
        """Hand out nothing more. What waits is forgotten here and will be read again by the next holder."""
        self.dropped = True
        if self.reader is not None:
            self.reader.cancel()
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

    def _update_room(self) -> None:
        if self.space > 0 or self.dropped:
            self.room.set()
        else:
            self.room.clear()
