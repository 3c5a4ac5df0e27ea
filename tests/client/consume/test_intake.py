"""What callers that ask for messages are given of chunks that are very large, or damaged."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from evenq.client.consume import intake
from evenq.client.consume.buffer import Buffer
from evenq.client.consume.intake import Intake
from evenq.client.namespaces import Namespace
from evenq.client.net.session import Session
from evenq.client.read.reading import Chunk
from evenq.client.settings import FlowControl
from evenq.model import MessageQueue
from evenq.protocol import encode_record
from evenq.protocol.filters import subscription
from evenq.protocol.flags import SysFlag
from tests.client.consume.test_buffer import chunk
from tests.client.read.test_reading import QUEUE

OTHER = MessageQueue(QUEUE.topic, QUEUE.broker, QUEUE.queue_id + 1)


class Readers:
    """Counts the readers that are started, which read nothing."""

    def __init__(self) -> None:
        self.started = 0

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        work.close()
        self.started += 1
        return asyncio.create_task(asyncio.sleep(0))


class Held:
    """An intake with the chunks of one queue, or of two."""

    def __init__(self, *chunks: Chunk) -> None:
        self.readers = Readers()
        everything = subscription(QUEUE.topic, version=1)
        session = cast(Session, self.readers)
        self.intake = Intake(session, "g", lambda topic: everything, auto_commit=True, namespace=Namespace())
        self.buffers = {each.queue: Buffer(each.queue, each.start, FlowControl()) for each in chunks}
        for buffer in self.buffers.values():
            self.intake.start(buffer)
        for each in chunks:
            self.buffers[each.queue].add(each)

    async def poll(self) -> list[int]:
        return [message.queue_offset for message in self.intake.messages(await self.intake.look(1000, 0.01))]


def packed_record(offset: int, size: int) -> bytes:
    return encode_record(
        topic=QUEUE.topic, body=zlib.compress(bytes(size)), queue_id=QUEUE.queue_id, queue_offset=offset,
        commit_log_offset=0, born_timestamp=1, born_host="127.0.0.1:1", store_timestamp=2, store_host="127.0.0.1:2",
        properties="", sys_flag=int(SysFlag.COMPRESSED),
    )  # fmt: skip


def packed(start: int, stop: int, size: int) -> Chunk:
    return Chunk(QUEUE, start, stop, b"".join(packed_record(offset, size) for offset in range(start, stop)))


def damaged(start: int, stop: int, queue: MessageQueue = QUEUE) -> Chunk:
    return Chunk(queue, start, stop, chunk(start, stop).body[:-1])


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_poll_ends_where_bodies_become_very_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "UNPACKED_AT_ONCE", 25_000)

    async def scenario() -> None:
        held = Held(packed(0, 2, 10_000), packed(2, 4, 10_000), packed(4, 6, 10_000))
        assert await held.poll() == [0, 1, 2, 3]
        assert await held.poll() == [4, 5]
        assert await held.poll() == []

    run(scenario())


def test_a_chunk_that_becomes_very_large_is_given_in_pieces() -> None:
    async def scenario() -> None:
        # each of a third of what is unpacked at once
        held = Held(packed(0, 8, 20 << 20))
        assert await held.poll() == [0, 1, 2, 3]
        assert held.buffers[QUEUE].given == 4
        assert await held.poll() == [4, 5, 6, 7]

    run(scenario())


def test_what_cannot_be_read_is_asked_for_again_and_holds_up_no_other_queue(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        held = Held(chunk(0, 3), damaged(3, 6), Chunk(OTHER, 0, 3, chunk(0, 3).body))
        buffer = held.buffers[QUEUE]
        found = await held.poll()
        assert sorted(found) == [0, 0, 1, 1, 2, 2]
        assert await held.poll() == []
        assert (buffer.given, buffer.done, buffer.next_offset) == (3, 3, 3)
        assert held.readers.started == 3
        buffer.add(chunk(3, 6))
        assert await held.poll() == [3, 4, 5]

    run(scenario())
    assert f"{QUEUE} at 3 cannot be read" in caplog.text


def test_columns_leave_out_what_cannot_be_read() -> None:
    async def scenario() -> None:
        held = Held(damaged(0, 3), Chunk(OTHER, 0, 3, chunk(0, 3).body))
        found = held.intake.columns(await held.intake.look(1000, 0.01), include_properties=False)
        assert len(found) == 3
        assert (held.buffers[QUEUE].given, held.buffers[OTHER].given) == (0, 3)
        assert held.readers.started == 3

    run(scenario())


def test_a_caller_in_another_thread_meets_what_cannot_be_read() -> None:
    async def scenario() -> None:
        held = Held(chunk(0, 3), damaged(3, 6))
        shown = await held.intake.look(1000, 0.01)
        offsets = await asyncio.to_thread(lambda: [each.queue_offset for each in held.intake.hand_out(shown)])
        assert offsets == [0, 1, 2]
        await asyncio.sleep(0)
        assert held.readers.started == 2
        held.buffers[QUEUE].add(chunk(3, 6))
        assert await held.poll() == [3, 4, 5]

    run(scenario())
