import asyncio

from evenq.client.consume.holding import Holding
from evenq.client.settings import FlowControl
from evenq.model import MessageQueue, MessageView

QUEUE = MessageQueue("orders", "broker-a", 0)


def message(offset: int, size: int = 100) -> MessageView:
    return MessageView(
        topic="orders",
        body=b"",
        queue_id=0,
        queue_offset=offset,
        store_timestamp=0,
        born_timestamp=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        commit_log_offset=0,
        msg_id="",
        properties={},
        store_size=size,
    )


def holding(**limits: int) -> Holding:
    return Holding(QUEUE, 0, FlowControl(**limits))


def test_what_was_handed_out_lies_before_what_still_waits_when_the_queue_is_dropped() -> None:
    held = holding()
    held.add([message(n) for n in range(5)], next_offset=5)
    first, second = held.take(2), held.take(1)
    held.drop()
    assert held.take(10) == []
    held.finish(second)
    assert held.progress.committable == 0
    held.finish(first)
    assert held.progress.committable == 3


def test_a_start_that_nobody_stored_is_still_to_be_committed() -> None:
    assert Holding(QUEUE, 7, FlowControl(), stored=True).committed == 7
    fresh = Holding(QUEUE, 7, FlowControl(), stored=False)
    assert fresh.committed < fresh.progress.committable == 7


def test_flow_control_stops_pulls_by_count_bytes_and_span() -> None:
    for limits in ({"messages": 3}, {"bytes": 300}, {"span": 2}):
        held = holding(**limits)
        held.add([message(0), message(1)], next_offset=2)
        assert held.room.is_set(), limits
        held.add([message(2)], next_offset=3)
        assert not held.room.is_set(), limits
        held.finish(held.take(3))
        assert held.room.is_set(), limits


def test_a_dropped_queue_frees_a_pull_that_waits_for_room() -> None:
    held = holding(messages=1)
    held.add([message(0)], next_offset=1)
    assert not held.room.is_set()
    held.drop()
    assert held.room.is_set()


def test_drained_waits_for_the_batches_that_run() -> None:
    async def scenario() -> None:
        held = holding()
        held.add([message(0)], next_offset=1)
        batch = held.take(1)
        held.drop()
        assert not await held.drained(0.01)
        waiting = asyncio.create_task(held.drained(5))
        await asyncio.sleep(0)
        held.finish(batch)
        assert await waiting

    asyncio.run(scenario())


def test_jumping_back_forgets_what_was_to_come() -> None:
    held = holding()
    held.add([message(0), message(1)], next_offset=2)
    held.jump(1)
    assert (held.progress.next_offset, held.waiting) == (1, 0)
    held.jump(50)
    assert held.progress.committable == 50
