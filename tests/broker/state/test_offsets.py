import asyncio
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from evenq.broker.state.offsets import GroupOffsets, OffsetsSaver
from evenq.broker.store.state_files import ConfigFiles
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode
from evenq.testing import EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.broker.stores import Hand
from tests.clusters import create_topic


def test_an_offset_may_go_back() -> None:
    offsets = GroupOffsets()
    offsets.commit("billing", "orders", 0, 9)
    offsets.commit("billing", "orders", 0, 4)
    assert offsets.get("billing", "orders", 0) == 4
    assert offsets.get("billing", "bills", 0) is None


def test_what_was_saved_is_taken_over_as_a_copy() -> None:
    saved = {("orders", "billing"): {0: 3}}
    offsets = GroupOffsets(saved)
    offsets.commit("billing", "orders", 0, 5)
    assert saved == {("orders", "billing"): {0: 3}}
    assert offsets.table() == {("orders", "billing"): {0: 5}}


def test_every_change_is_told_once() -> None:
    offsets = GroupOffsets({("t", "before"): {0: 9}})
    assert offsets.take_changes() == {}
    offsets.commit("g", "t", 0, 1)
    offsets.commit("g", "t", 0, 2)
    offsets.clone("g", "other", "t")
    assert offsets.take_changes() == {("t", "g"): {0: 2}, ("t", "other"): {0: 2}}
    offsets.forget_topic("t")
    assert offsets.take_changes() == {("t", "before"): None, ("t", "g"): None, ("t", "other"): None}
    offsets.forget_topic("t")
    assert offsets.take_changes() == {}


def test_topics_and_groups_are_found_by_each_other_and_forgotten() -> None:
    offsets = GroupOffsets()
    for group, topic in (("g1", "a"), ("g1", "b"), ("g2", "a")):
        offsets.commit(group, topic, 1, 7)
    assert (offsets.topics("g1"), offsets.groups("a")) == (["a", "b"], ["g1", "g2"])
    assert offsets.queues("g1", "a") == {1: 7}
    offsets.forget_topic("a")
    assert (offsets.topics("g1"), offsets.groups("a")) == (["b"], [])
    offsets.forget_group("g1")
    assert offsets.table() == {}


def test_a_reset_counts_until_it_was_told_and_commits_count_after_that() -> None:
    offsets = GroupOffsets()
    offsets.commit("g", "t", 0, 9)
    offsets.reset("g", "t", 0, 3)
    offsets.commit("g", "t", 0, 10)
    offsets.commit("g", "t", 1, 10)
    assert (offsets.get("g", "t", 0), offsets.get("g", "t", 1)) == (3, 10)
    offsets.reset("g", "t", 0, 4)
    assert [offsets.take_reset("g", "t", 0) for _ in range(2)] == [4, None]
    offsets.commit("g", "t", 0, 5)
    assert offsets.get("g", "t", 0) == 5


def test_what_is_in_hand_is_never_less_than_what_is_committed() -> None:
    offsets = GroupOffsets()
    assert offsets.in_hand("g", "t", 0) == 0
    offsets.pulled("g", "t", 0, 32)
    assert offsets.in_hand("g", "t", 0) == 32
    offsets.commit("g", "t", 0, 40)
    assert offsets.in_hand("g", "t", 0) == 40
    offsets.forget_group("g")
    assert offsets.in_hand("g", "t", 0) == 0


def test_no_offset_is_behind_the_end_of_its_queue() -> None:
    saved = {("t", "g"): {0: 9, 1: 5, 2: -3}, ("%RETRY%g", "g"): {0: 4}, ("gone", "g"): {0: 9}}
    offsets = GroupOffsets(saved)
    ends = {("t", 0): 5, ("t", 1): 5, ("t", 2): 5, ("%RETRY%g", 0): 0}
    found = offsets.limit(lambda topic, queue_id: ends.get((topic, queue_id)))
    assert found == [("g", "t", 0, 9, 5), ("g", "t", 2, -3, 0), ("g", "%RETRY%g", 0, 4, 0)]
    assert offsets.table() == {("t", "g"): {0: 5, 1: 5, 2: 0}, ("%RETRY%g", "g"): {0: 0}, ("gone", "g"): {0: 9}}
    assert offsets.limit(lambda topic, queue_id: ends.get((topic, queue_id))) == []


@pytest.mark.live
def test_a_group_gets_what_comes_where_a_queue_lost_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def restarted() -> AbstractContextManager[EmbeddedCluster]:
        return cluster(data=tmp_path)

    def offset_of(peer: Peer, topic: str) -> int:
        header = headers.QueryOffset(consumer_group="g", topic=topic, queue_id=0)
        return int(peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header).ext["offset"])

    with restarted() as running, Peer(running.brokers["broker-a"].address) as peer:
        create_topic(running.namesrv, "orders", queues=1)
        for _ in range(5):
            peer.put("orders")
    saved = {("orders", "g"): {0: 7}, ("gone", "g"): {0: 7}}
    ConfigFiles(tmp_path / "broker-a" / "config").save_offsets(saved)
    with restarted() as running, Peer(running.brokers["broker-a"].address) as peer:
        assert offset_of(peer, "orders") == 5
        assert offset_of(peer, "gone") == 7
        assert not (tmp_path / "broker-a" / "consumequeue" / "gone").exists()
        assert "group g was at offset 7 of queue 0 of orders, and goes on at 5" in caplog.text
        for _ in range(3):
            peer.put("orders")
    # the queue has the old offset again, and it does not come back
    with restarted() as running, Peer(running.brokers["broker-a"].address) as peer:
        assert offset_of(peer, "orders") == 5


def test_a_clone_is_a_copy() -> None:
    offsets = GroupOffsets({("t", "g"): {0: 3}})
    offsets.clone("g", "h", "t")
    offsets.commit("h", "t", 0, 5)
    offsets.clone("nobody", "i", "t")
    assert offsets.table() == {("t", "g"): {0: 3}, ("t", "h"): {0: 5}}


class TestSaver:
    """Offsets are saved in another thread, as they were when that began."""

    @staticmethod
    async def until_idle(saver: OffsetsSaver) -> None:
        async with asyncio.timeout(10):
            while saver._running is not None:
                await asyncio.sleep(0)

    def test_what_changes_while_it_is_saved_is_saved_next(self) -> None:
        offsets = GroupOffsets({("orders", "billing"): {0: 1}})
        offsets.commit("audit", "orders", 0, 5)
        saved: list[dict[tuple[str, str], dict[int, int]]] = []
        begun, go_on = threading.Event(), threading.Event()

        def save(table: dict[tuple[str, str], dict[int, int]]) -> None:
            begun.set()
            assert go_on.wait(10)
            saved.append({key: dict(queues) for key, queues in table.items()})

        async def scene() -> None:
            saver = OffsetsSaver(offsets, save, now=lambda: 0.0)
            # what was there at the start is saved already
            saver.tick()
            assert saver._running is None
            offsets.commit("billing", "orders", 0, 2)
            saver.tick()
            assert await asyncio.to_thread(begun.wait, 10)
            offsets.commit("billing", "orders", 0, 3)
            offsets.forget_group("audit")
            saver.tick()
            go_on.set()
            await self.until_idle(saver)
            saver.tick()
            await self.until_idle(saver)
            saver.tick()
            assert saver._running is None

        asyncio.run(scene())

        assert saved == [
            {("orders", "billing"): {0: 2}, ("orders", "audit"): {0: 5}},
            {("orders", "billing"): {0: 3}},
        ]

    def test_a_failure_is_made_up_for(self) -> None:
        offsets = GroupOffsets()
        tries: list[int] = []

        def save(table: dict[tuple[str, str], dict[int, int]]) -> None:
            tries.append(table["orders", "billing"][0])
            if len(tries) < 3:
                raise OSError(28, "No space left on device")

        async def scene() -> None:
            saver = OffsetsSaver(offsets, save, now=lambda: 0.0)
            offsets.commit("billing", "orders", 0, 7)
            for _ in range(2):
                saver.tick()
                await self.until_idle(saver)
            await saver.finish()
            await saver.finish()

        asyncio.run(scene())
        assert tries == [7, 7, 7]

    def test_a_save_that_is_cancelled_is_made_up_for(self) -> None:
        offsets = GroupOffsets()
        saved: list[int] = []
        begun, go_on = threading.Event(), threading.Event()

        def save(table: dict[tuple[str, str], dict[int, int]]) -> None:
            begun.set()
            assert go_on.wait(10)
            saved.append(table["orders", "billing"][0])

        async def scene() -> None:
            saver = OffsetsSaver(offsets, save, now=lambda: 0.0)
            offsets.commit("billing", "orders", 0, 7)
            saver.tick()
            assert await asyncio.to_thread(begun.wait, 10)
            # what the end of a loop does
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
            offsets.commit("billing", "orders", 0, 8)
            finishing = asyncio.create_task(saver.finish())
            await asyncio.sleep(0)
            go_on.set()
            await finishing

        asyncio.run(scene())
        assert saved == [7, 8]

    def test_a_table_that_takes_long_is_saved_less_often(self) -> None:
        offsets = GroupOffsets()
        hand = Hand(0.0)
        saves: list[float] = []

        def save(table: object) -> None:
            saves.append(hand.now)
            hand.now += 0.5

        async def scene() -> None:
            saver = OffsetsSaver(offsets, save, now=hand)
            while hand.now < 20:
                offsets.commit("billing", "orders", 0, 7)
                saver.tick()
                await self.until_idle(saver)
                hand.now += 0.5

        asyncio.run(scene())
        assert saves == [0.0, 5.0, 10.0, 15.0]
