"""Commits of a queue, and what moves the queue while one is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from evenq.client.consume.buffer import Buffer
from evenq.client.consume.holding import Holding
from evenq.client.group.offsets import commit
from evenq.client.group.starts import Start
from evenq.client.settings import FlowControl
from evenq.model import MessageQueue
from tests.client.consume.test_buffer import chunk
from tests.client.consume.test_holding import pulled
from tests.client.read.test_reading import QUEUE


class SlowOffsets:
    """Offsets that are stored when the test says so."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        raise NotImplementedError

    async def store(self, queue: MessageQueue, offset: int) -> None:
        self.asked.set()
        await self.go_on.wait()
        self.stored.append(offset)


def pushed(stored: bool) -> Holding:
    """A queue of which 20 messages are consumed."""
    held = Holding(QUEUE, 0, FlowControl(), stored=stored)
    held.add(pulled(*range(20)))
    held.finish(held.take(20))
    return held


def polled(stored: bool) -> Buffer:
    held = Buffer(QUEUE, 0, FlowControl(), stored=stored)
    held.add(chunk(0, 20))
    assert held.hand(held.epoch, 20)
    held.finish()
    return held


@pytest.mark.parametrize("stored", [True, False])
def test_a_reset_during_a_commit_is_stored_after_it(stored: bool) -> None:
    async def scenario() -> list[int]:
        offsets, held = SlowOffsets(), pushed(stored)
        first = asyncio.create_task(commit(offsets, held))
        await offsets.asked.wait()
        held.reset(10)
        second = asyncio.create_task(commit(offsets, held))
        offsets.go_on.set()
        await asyncio.gather(first, second)
        assert held.committed == 10
        return offsets.stored

    assert asyncio.run(scenario()) == [20, 10]


@pytest.mark.parametrize("stored", [True, False])
def test_what_is_consumed_after_a_seek_back_during_a_commit_is_stored(stored: bool) -> None:
    async def scenario() -> list[int]:
        offsets, held = SlowOffsets(), polled(stored)
        first = asyncio.create_task(commit(offsets, held))
        await offsets.asked.wait()
        held.jump(5)
        offsets.go_on.set()
        await first
        held.add(chunk(5, 20))
        assert held.hand(held.epoch, 8)
        held.finish()
        await commit(offsets, held)
        assert held.committed == 8
        return offsets.stored

    assert asyncio.run(scenario()) == [20, 8]
