"""The buffers of one consumer: filled by readers, looked at in turn, given to the caller."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from evenq.client.consume.buffer import Buffer
from evenq.client.namespaces import Namespace
from evenq.client.net.session import Session
from evenq.client.read.following import Follower
from evenq.client.read.reading import Chunk, Pace
from evenq.client.read.unpacking import UNREADABLE_PAUSE, as_columns, as_messages
from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.protocol.bodies import Subscription
from evenq.protocol.compression import UNPACKED_AT_ONCE
from evenq.protocol.view import MessageView

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Intake", "Shown", "in_turn"]

log = logging.getLogger(__name__)


def current_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Shown(msgspec.Struct, frozen=True):
    """A chunk that the caller may be given, as long as the buffer is in the same epoch."""

    buffer: Buffer
    epoch: int
    chunk: Chunk

    def hand(self, stop: int) -> bool:
        return self.buffer.hand(self.epoch, stop)

    def skip(self, start: int, stop: int | None = None) -> None:
        """The chunk, which was given, holds no message from ``start`` on, up to ``stop`` or its end."""
        self.buffer.skip(self.epoch, max(start, self.chunk.start), self.chunk.stop if stop is None else stop)


def in_turn(buffers: Iterable[Buffer], limit: int) -> tuple[list[Shown], bool]:
    """What comes next of all buffers, chunk by chunk in turn, ``limit`` messages at most; and whether there is more.

    Chunks are shown whole, as long as there is one that fits: to cut one takes time.
    """
    turns = deque((buffer, buffer.ahead()) for buffer in buffers)
    found: list[Shown] = []
    while turns:
        buffer, ahead = turns.popleft()
        chunk = next(ahead, None)
        if chunk is None:
            continue
        if len(chunk) > limit:
            if found:
                return found, True
            chunk = chunk.first(limit)
        found.append(Shown(buffer, buffer.epoch, chunk))
        limit -= len(chunk)
        if limit <= 0:
            return found, True
        turns.append((buffer, ahead))
    return found, False


def last_offsets(batch: pa.RecordBatch) -> dict[MessageQueue, int]:
    """The last offset of each queue that a record batch has messages of.

    >>> import pyarrow as pa
    >>> columns = {"topic": ["t"] * 3, "broker": ["b"] * 3, "queue_id": [0, 1, 0], "offset": [7, 3, 8]}
    >>> last_offsets(pa.RecordBatch.from_pydict(columns))[MessageQueue("t", "b", 0)]
    8
    """
    import pyarrow as pa

    grouped = pa.Table.from_batches([batch]).group_by(["topic", "broker", "queue_id"]).aggregate([("offset", "max")])
    return {
        MessageQueue(row["topic"], row["broker"], row["queue_id"]): row["offset_max"] for row in grouped.to_pylist()
    }


class Intake:
    """Reads held queues ahead. With ``auto_commit`` asking for more says that what was given before is done."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscription: Callable[[str], Subscription],
        *,
        auto_commit: bool,
        namespace: Namespace,
    ) -> None:
        self._session = session
        self._namespace = namespace
        self._group = group
        self._subscription = subscription
        self._auto_commit = auto_commit
        self._buffers: dict[MessageQueue, Buffer] = {}
        self._paces: dict[str, Pace] = {}
        self._arrived = asyncio.Event()
        # which buffer comes first: another one each time
        self._turn = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def buffers(self) -> dict[MessageQueue, Buffer]:
        """Those that are held, by queue."""
        return {queue: buffer for queue, buffer in self._buffers.items() if not buffer.dropped}

    def tags(self, topic: str) -> set[str]:
        return self._subscription(topic).tags_set

    def start(self, buffer: Buffer) -> None:
        """Read a queue from where its buffer stands, until the buffer is dropped."""
        self._buffers[buffer.queue] = buffer
        self._start_reader(buffer)

    def _start_reader(self, buffer: Buffer, pause: float = 0.0) -> None:
        async def read() -> None:
            await asyncio.sleep(pause)
            await self._session.repeat(partial(self._follow, buffer), f"reading of {buffer.queue}")

        self._loop = asyncio.get_running_loop()
        buffer.reader = self._session.spawn(read())

    def seek(self, buffer: Buffer, offset: int) -> None:
        """Read on at ``offset``, unless the queue was dropped: its messages belong to another holder."""
        if buffer.dropped:
            return
        if buffer.reader is not None:
            buffer.reader.cancel()
        buffer.jump(offset)
        self.start(buffer)

    def close(self) -> None:
        """Nothing comes any more: whoever waits need not wait longer."""
        self._closed = True
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._arrived.set()

    def finish(self) -> None:
        """The caller has done with everything that it was given."""
        for buffer in self._buffers.values():
            buffer.finish()

    def take_back(self) -> None:
        """What it was given and has not done will come again."""
        for buffer in self._buffers.values():
            buffer.take_back()

    async def look(self, limit: int, timeout: float, gather: float = 0.0) -> list[Shown]:
        """What comes next, ``limit`` messages at most; nothing when nothing came within ``timeout`` seconds.

        Where there is less than that, and more is known to be on its way, it is waited for for ``gather`` seconds.
        """
        if self._auto_commit:
            self.finish()
        for queue in [queue for queue, buffer in self._buffers.items() if buffer.dropped and not buffer.in_hand]:
            del self._buffers[queue]
        shown, full = self._look(limit)
        if not shown:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not shown and not self._closed:
                        await self._arrival()
                        shown, full = self._look(limit)
        if gather and not full and self._growing(limit):
            with suppress(TimeoutError):
                async with asyncio.timeout(gather):
                    while self._growing(limit) and not self._closed:
                        await self._arrival()
            shown, _ = self._look(limit)
        return shown

    def messages(self, everything: Iterable[Shown]) -> list[MessageView]:
        """The messages of what was shown, given to the caller. Fewer where compressed bodies become very large."""
        found: list[MessageView] = []
        size = 0
        for shown in everything:
            start = shown.chunk.start
            for messages, stop in self._unpack(shown):
                if not shown.hand(stop):
                    break
                # what a filter left out behind the last message
                shown.skip(messages[-1].queue_offset + 1 if messages else start, stop)
                start = stop
                found += messages
                size += sum(len(message.body) for message in messages)
                if size > UNPACKED_AT_ONCE:
                    return self._namespace.unwrap_messages(found)
        return self._namespace.unwrap_messages(found)

    def columns(self, everything: Sequence[Shown], *, include_properties: bool) -> pa.RecordBatch:
        """The same as a record batch."""
        unpack = partial(as_columns, tags=self.tags, include_properties=include_properties)
        try:
            found = unpack([shown.chunk for shown in everything])
        except ProtocolError:
            # the others must not wait for a damaged one; and all together may be too large
            everything = [shown for shown in everything if self._is_readable(shown)][:1]
            found = unpack([shown.chunk for shown in everything])
        taken = [shown for shown in everything if shown.hand(shown.chunk.stop)]
        if len(taken) < len(everything):
            found = unpack([shown.chunk for shown in taken])
        if not len(found):
            for shown in taken:
                shown.skip(shown.chunk.start)
        elif not self._auto_commit:
            # else all of it is done when more is asked for
            ends = last_offsets(found)
            for shown in taken:
                shown.skip(ends.get(shown.chunk.queue, -1) + 1)
        return self._namespace.unwrap_batch(found)

    def hand_out(self, everything: Sequence[Shown]) -> Iterator[MessageView]:
        """Message by message: each is given when it is asked for, and done when the next one is."""
        for shown in everything:
            end = shown.chunk.start
            for messages, stop in self._unpack(shown):
                for message in self._namespace.unwrap_messages(messages):
                    end = message.queue_offset + 1
                    if not shown.hand(end):
                        return
                    yield message
                    self._done(shown)
                # what a filter left out behind the last message
                if shown.hand(stop):
                    shown.skip(end, stop)
                end = stop
                self._done(shown)

    def _unpack(self, shown: Shown) -> Iterator[tuple[list[MessageView], int]]:
        try:
            yield from as_messages(shown.chunk, self.tags)
        except ProtocolError as error:
            self._read_again(shown.buffer, error)

    def _is_readable(self, shown: Shown) -> bool:
        try:
            as_columns([shown.chunk], self.tags)
        except ProtocolError as error:
            self._read_again(shown.buffer, error)
            return False
        return True

    def _read_again(self, buffer: Buffer, error: ProtocolError) -> None:
        """What came cannot be unpacked: ask for it once more, later. May be called in the caller's thread."""
        log.error("%s at %d cannot be read", buffer.queue, buffer.given, exc_info=error)
        if self._loop is not None and self._loop is not current_loop():
            self._loop.call_soon_threadsafe(self._restart, buffer)
        else:
            # at once: whoever looks again must not find the same
            self._restart(buffer)

    def _restart(self, buffer: Buffer) -> None:
        if buffer.dropped:
            return
        if buffer.reader is not None:
            buffer.reader.cancel()
        buffer.forget()
        self._start_reader(buffer, UNREADABLE_PAUSE)

    def _done(self, shown: Shown) -> None:
        if self._auto_commit:
            shown.buffer.finish()

    async def _arrival(self) -> None:
        """Wait until something comes."""
        self._arrived.clear()
        await self._arrived.wait()

    @property
    def _ready(self) -> list[Buffer]:
        return [buffer for buffer in self._buffers.values() if buffer.may_give]

    def _growing(self, limit: int) -> bool:
        """Whether there is less than ``limit``, and more about to come."""
        ready = self._ready
        return sum(buffer.ready for buffer in ready) < limit and any(buffer.growing for buffer in ready)

    def _look(self, limit: int) -> tuple[list[Shown], bool]:
        ready = self._ready
        self._turn = (self._turn + 1) % max(1, len(ready))
        found, full = in_turn((*ready[self._turn :], *ready[: self._turn]), limit)
        now = time.monotonic()
        for shown in found:
            shown.buffer.consumed_at = now
        return found, full

    async def _follow(self, buffer: Buffer) -> None:
        queue = buffer.queue

        def alive() -> None:
            buffer.pulled_at = time.monotonic()

        follower = Follower(
            self._session,
            self._group,
            queue,
            buffer.next_offset,
            subscription=lambda: self._subscription(queue.topic),
            pace=self._paces.setdefault(queue.broker, Pace()),
            room=lambda: buffer.space,
            most=lambda: buffer.limits.messages,
            alive=alive,
        )
        async with aclosing(follower.chunks()) as chunks:
            async for chunk in chunks:
                buffer.add(chunk)
                buffer.end = follower.end
                self._arrived.set()
                await buffer.room.wait()
