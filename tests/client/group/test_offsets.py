"""Commits of a queue, and what moves the queue while one is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from evenq import Admin, LitePullConsumer, Message, Producer
from evenq.client.consume.buffer import Buffer
from evenq.client.consume.holding import Holding
from evenq.client.group.offsets import commit, commit_all
from evenq.client.group.starts import Start
from evenq.client.settings import FlowControl, Intervals
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import UpdateOffset
from evenq.protocol.view import MessageView
from evenq.supervision import Outages
from evenq.testing import EmbeddedCluster, cluster
from tests.client.consume.test_buffer import chunk
from tests.client.consume.test_holding import pulled
from tests.client.read.test_reading import QUEUE
from tests.clusters import ask, create_topic
from tests.waiting import wait_until


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

    def may_be_lost(self, queue: MessageQueue) -> bool:
        return False

    async def store_again(self, queue: MessageQueue, offset: int) -> int:
        raise NotImplementedError


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


@pytest.mark.live
@pytest.mark.parametrize("assigned", [True, False])
def test_an_offset_that_a_broker_lost_is_committed_again(topic: str, group: str, assigned: bool) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    with (
        cluster(brokers=1) as running,
        Admin(running.namesrv) as admin,
        LitePullConsumer(
            running.namesrv, group, begin="first", auto_commit=False, intervals=Intervals(commit=0.1)
        ) as consumer,
    ):
        create_topic(running.namesrv, topic, queues=1)
        with Producer(running.namesrv) as producer:
            for _ in range(5):
                producer.send(Message(topic, b"x"))

        def stored() -> int:
            (found,) = [one for one in admin.progress(group, topic).queues if one.queue == queue]
            return found.offset

        if assigned:
            consumer.assign([queue])
        else:
            consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(timeout=0.1), "messages")
        consumer.commit()
        assert stored() == 5
        # as after a kill: the broker's file of offsets is older than what it has confirmed
        header = UpdateOffset(topic=topic, queue_id=0, consumer_group=group, commit_offset=2)
        ask(running.brokers["broker-a"].address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert stored() == 2
        running.stop_broker("broker-a")
        running.start_broker("broker-a")
        wait_until(lambda: stored() == 5, "offset 5 at the broker again", 30)


def test_a_commit_that_fails_for_long_is_logged_when_it_begins_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    class Away(SlowOffsets):
        async def store(self, queue: MessageQueue, offset: int) -> None:
            if self.go_on.is_set():
                self.stored.append(offset)
            else:
                raise ConnectError("b:1", "refused")

    async def scenario() -> list[int]:
        offsets, held, outages = Away(), pushed(False), Outages()
        for _ in range(25):
            await commit_all(offsets, [held], "g", outages)
        offsets.go_on.set()
        for _ in range(3):
            await commit_all(offsets, [held], "g", outages)
        return offsets.stored

    assert asyncio.run(scenario()) == [20]
    name, reason = f"commit of {QUEUE} for group g", ConnectError("b:1", "refused")
    assert [record.getMessage() for record in caplog.records] == [
        f"{name} failed and is repeated until it works: {reason}",
        f"{name} failed 10 times: {reason}",
        f"{name} works again after 25 failures",
    ]


class KeptOffsets(SlowOffsets):
    """Offsets at a broker that may have lost them, or have others."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept

    async def store(self, queue: MessageQueue, offset: int) -> None:
        self.stored.append(offset)
        self.kept = offset

    def may_be_lost(self, queue: MessageQueue) -> bool:
        return True

    async def store_again(self, queue: MessageQueue, offset: int) -> int:
        if self.kept < offset:
            await self.store(queue, offset)
        return self.kept


def test_a_reset_forward_that_was_missed_is_not_undone() -> None:
    async def scenario() -> list[int]:
        offsets, held = KeptOffsets(0), pushed(True)
        await commit(offsets, held)
        # while this member was cut off
        offsets.kept = 25
        await commit(offsets, held)
        held.add(pulled(*range(20, 24)))
        held.finish(held.take(4))
        await commit(offsets, held)
        held.add(pulled(*range(24, 30)))
        held.finish(held.take(6))
        await commit(offsets, held)
        return offsets.stored

    assert asyncio.run(scenario()) == [20, 30]


@pytest.mark.live
def test_an_offset_is_checked_also_without_a_new_connection(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenq.client.group.offsets.CHECK_STORED_S", 0.2)
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    with (
        Producer(embedded_cluster.namesrv) as producer,
        Admin(embedded_cluster.namesrv) as admin,
        LitePullConsumer(embedded_cluster.namesrv, group, begin="first", intervals=Intervals(commit=0.1)) as consumer,
    ):
        producer.send_batch([Message(topic, b"x")] * 5, queue=queue)
        seen: list[MessageView] = []

        def all_seen() -> bool:
            seen.extend(consumer.poll(timeout=0.1))
            return len(seen) == 5

        def stored() -> int:
            (found,) = [one for one in admin.progress(group, topic).queues if one.queue == queue]
            return found.offset

        def store(offset: int) -> None:
            header = UpdateOffset(topic=topic, queue_id=0, consumer_group=group, commit_offset=offset)
            ask(embedded_cluster.brokers["broker-a"].address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

        consumer.assign([queue])
        wait_until(all_seen, "all messages")
        consumer.commit()
        # as a broker behind a proxy that was killed
        store(2)
        wait_until(lambda: stored() == 5, lambda: f"offset 5 at the broker again: {stored()}")
