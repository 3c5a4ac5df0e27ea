"""What was read ahead of one queue, in chunks as they came, and how far the caller is in it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator

from evenq.client.group.held import Cached, Lease
from evenq.client.read.reading import Chunk
from evenq.client.settings import FlowControl
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["Buffer"]

# How often a queue that is to be let go looks whether the caller has come back.
LOOK_AGAIN = 0.01


class Buffer:
    """One held queue of a consumer that is asked for messages.

    ::

        committed ≤ done ≤ given ≤ next_offset
            │        │      │         └ where the next chunk will begin
            │        │      └ what the caller has got ends here
            │        └ what the caller has finished ends here: this may be committed
            └ what the broker has confirmed

    A chunk stays here until everything in it was given, so a caller that stops in its midst goes on there. What a
    filter left out is given without being shown, and done as soon as everything before it is. ``hand``, ``skip`` and
    ``finish`` may be called in the caller's thread, all else in the loop.
    """

    def __init__(self, queue: MessageQueue, start: int, limits: FlowControl, *, stored: bool = True) -> None:
        self.queue = queue
        self.limits = limits
        # where nothing was stored yet, the start itself must be: whoever comes next would begin elsewhere
        self.committed = start if stored else -1
        self.done = self.given = self.next_offset = start
        # whether the caller went elsewhere by itself, and has not said since what is to be committed
        self.commit_waits = False
        # the first offset that the queue is not known to have
        self.end = start
        self.lease = Lease()
        self.pulled_at = self.consumed_at = 0.0
        self.committing = asyncio.Lock()
        self.dropped = False
        self.paused = False
        # counts how often the caller or the broker went elsewhere: what was shown before that is void
        self.epoch = 0
        # who fills this buffer
        self.reader: asyncio.Task[None] | None = None
        # offsets behind ``done`` that were given without a message in them, in order: (start, stop)
        self._gaps: deque[tuple[int, int]] = deque()
        # guards all of these, and that nothing is given that is void
        self._moving = threading.Lock()
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        # set while more may be read ahead
        self.room = asyncio.Event()
        self.room.set()

    @property
    def committable(self) -> int:
        return self.committed if self.commit_waits else self.done

    @property
    def in_hand(self) -> int:
        """How many offsets the caller has got and not finished."""
        return self.given - self.done

    @property
    def may_give(self) -> bool:
        """Whether the caller may be given messages now."""
        return not self.dropped and not self.paused and self.lease.counts()

    @property
    def ready(self) -> int:
        """How many offsets were read and not given."""
        return self.next_offset - self.given

    @property
    def cached(self) -> Cached:
        return Cached(self.ready, self.given, self.next_offset - 1, self._bytes)

    @property
    def growing(self) -> bool:
        """Whether more is about to come."""
        return self.next_offset < self.end and self.room.is_set()

    @property
    def space(self) -> int:
        """How many more offsets may be asked for."""
        return self.limits.messages - self.ready if self._bytes < self.limits.bytes else 0

    def limit(self, limits: FlowControl) -> None:
        """These limits hold from now on."""
        self.limits = limits
        self._update_room()

    def add(self, chunk: Chunk) -> None:
        """Take what was read. A chunk that does not follow on the last one is where the broker says to go on."""
        if chunk.start != self.next_offset:
            self.jump(chunk.start)
        self.next_offset = chunk.stop
        if chunk.body:
            self._chunks.append(chunk)
            self._bytes += len(chunk.body)
        self._update_room()

    def jump(self, offset: int) -> None:
        """Go on at ``offset``, forward or back, and forget what was read ahead."""
        self._chunks.clear()
        self._bytes = 0
        with self._moving:
            self.epoch += 1
            self._gaps.clear()
            self.done = self.given = self.next_offset = offset
            if offset < self.committed:
                # also this offset itself must be stored then
                self.committed = -1
        self._update_room()

    def ahead(self) -> Iterator[Chunk]:
        """The chunks that come next. Nothing is given by that: :meth:`hand` says what the caller gets."""
        self._trim()
        return iter(self._chunks)

    def forget(self) -> None:
        """What was read ahead is void, and will be read once more. What the caller has got is its own."""
        self._chunks.clear()
        self._bytes = 0
        with self._moving:
            self.epoch += 1
            self.next_offset = self.given
        self._update_room()

    def hand(self, epoch: int, stop: int) -> bool:
        """Give the caller what lies before ``stop``; False where what it was shown under ``epoch`` is void, or nothing
        may be given now."""
        with self._moving:
            if self.epoch != epoch or not self.may_give:
                return False
            if stop < self.given:
                # given meanwhile to somebody else who asked
                return False
            self.given = stop
            return True

    def skip(self, epoch: int, start: int, stop: int) -> None:
        """Of what the caller was given under ``epoch``, ``start`` up to ``stop`` holds no message."""
        with self._moving:
            # beyond ``given`` it was taken back
            if self.epoch == epoch and start < stop <= self.given:
                self._gaps.append((start, stop))
                self._pass_gaps()

    def _pass_gaps(self) -> None:
        while self._gaps and self._gaps[0][0] <= self.done:
            self.done = max(self.done, self._gaps.popleft()[1])

    def finish(self) -> None:
        """The caller has done with everything that it got."""
        with self._moving:
            self.done = self.given
            self.commit_waits = False
            self._gaps.clear()

    def finished(self, offset: int, shown: MessageQueue | None = None) -> Buffer:
        """The caller, who may call the queue ``shown``, has done with what lies before ``offset``."""
        with self._moving:
            if not max(0, self.committed) <= offset <= self.given:
                remedy = f"give an offset from {max(0, self.committed)} (stored already) to {self.given} (given so far)"
                raise ArgumentError("offsets", {shown or self.queue: offset}, remedy)
            self.done = offset
            self.commit_waits = False
            self._pass_gaps()
        return self

    def take_back(self) -> None:
        """What the caller has got and not finished counts as not given."""
        with self._moving:
            self.given = self.done
            self._gaps.clear()

    def drop(self) -> None:
        """Give nothing more."""
        with self._moving:
            self.dropped = True
        if self.reader is not None:
            self.reader.cancel()
        self._chunks.clear()

    async def drained(self, timeout: float) -> bool:
        """Wait until the caller has finished what it got; False when that took longer than ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self.in_hand:  # noqa: ASYNC110 - the caller finishes in its own thread
                    await asyncio.sleep(LOOK_AGAIN)
        except TimeoutError:
            return False
        return True

    def _trim(self) -> None:
        """Forget what was given."""
        chunks, given = self._chunks, self.given
        while chunks and chunks[0].stop <= given:
            self._bytes -= len(chunks.popleft().body)
        if chunks and chunks[0].start < given:
            whole = chunks.popleft()
            rest = whole.since(given)
            self._bytes -= len(whole.body) - len(rest.body)
            chunks.appendleft(rest)
        if not chunks and self.hand(self.epoch, self.next_offset):
            # a filter left out what there is behind it
            self.skip(self.epoch, given, self.next_offset)
        self._update_room()

    def _update_room(self) -> None:
        if self.space > 0:
            self.room.set()
        else:
            self.room.clear()
