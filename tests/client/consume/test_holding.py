import asyncio
from collections.abc import Sequence

import pytest

from evenq.client.consume.holding import PIECE, Holding
from evenq.client.read.reading import Chunk
from evenq.client.read.unpacking import Unread
from evenq.client.settings import FlowControl
from evenq.errors import ProtocolError
from evenq.protocol.view import MessageView, make_view
from tests.client.read.test_reading import QUEUE, record


def message(offset: int, size: int = 100) -> MessageView:
    return make_view(topic="orders", body=b"", queue_offset=offset, properties={}, store_size=size)


def holding(**limits: int) -> Holding:
    return Holding(QUEUE, 0, FlowControl(**limits))


def pulled(*offsets: int, stop: int | None = None, start: int | None = None, tags: Sequence[str] = ()) -> Unread:
    """What a pull brings: messages at the offsets, and to go on behind them, or at ``stop``."""
    begin = offsets[0] if start is None else start
    end = offsets[-1] + 1 if stop is None else stop
    return Unread(
        Chunk(QUEUE, begin, end, b"".join(record(QUEUE, offset) for offset in offsets)), lambda topic: set(tags)
    )


def test_what_was_handed_out_lies_before_what_still_waits_when_the_queue_is_dropped() -> None:
    held = holding()
    held.add(pulled(*range(5)))
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
    for limits in ({"messages": 3}, {"bytes": 3 * len(record(QUEUE, 0))}, {"span": 2}):
        for unpacked in (0, 1, 2):
            held = holding(**limits)
            held.add(pulled(0, 1))
            held._unpack(unpacked)
            assert held.room.is_set(), limits
            held.add(pulled(2))
            assert not held.room.is_set(), limits
            assert (held.cached.count, held.cached.last, held.cached.bytes) == (3, 2, 3 * len(record(QUEUE, 0)))
            held.finish(held.take(3))
            assert held.room.is_set(), limits


def test_a_dropped_queue_frees_a_pull_that_waits_for_room() -> None:
    held = holding(messages=1)
    held.add(pulled(0))
    assert not held.room.is_set()
    held.drop()
    assert held.room.is_set()


def test_drained_waits_for_the_batches_that_run() -> None:
    async def scenario() -> None:
        held = holding()
        held.add(pulled(0))
        batch = held.take(1)
        held.drop()
        assert not await held.drained(0.01)
        waiting = asyncio.create_task(held.drained(5))
        await asyncio.sleep(0)
        held.finish(batch)
        assert await waiting

    asyncio.run(scenario())


def test_what_lies_further_back_forgets_what_was_to_come() -> None:
    held = holding()
    held.add(pulled(0, 1))
    held.add(pulled(start=1, stop=1))
    assert (held.next_offset, held.waiting) == (1, False)
    held.add(pulled(start=50, stop=50))
    assert (held.next_offset, held.committable) == (50, 50)


def test_messages_are_unpacked_as_they_are_wanted() -> None:
    held = holding()
    held.add(pulled(*range(100)))
    held.add(pulled(*range(100, 150)))
    assert (held.progress.count, held.cached.count, held.next_offset) == (0, 150, 150)
    assert [each.queue_offset for each in held.take(1)] == [0]
    assert held.progress.count == PIECE
    assert [each.queue_offset for each in held.take(140)] == list(range(1, 141))
    assert held.committable == 0
    assert [each.queue_offset for each in held.take(140)] == list(range(141, 150))
    assert (held.take(1), held.waiting, held.next_offset) == ([], False, 150)


def test_stretches_without_a_message_are_consumed_when_all_before_them_is() -> None:
    held = holding()
    held.add(pulled(start=0, stop=10))
    assert (held.committable, held.waiting) == (10, False)
    held.add(pulled(10, 11))
    held.add(pulled(start=12, stop=20))
    batch = held.take(5)
    assert held.committable == 10
    held.finish(batch)
    assert held.committable == 20


def test_messages_that_are_not_wanted_are_passed_over() -> None:
    held = holding()
    held.add(pulled(0, 1, 2, tags=["paid"]))
    assert held.waiting, "nobody has looked yet"
    assert (held.take(5), held.waiting, held.committable) == ([], False, 3)


def test_room_that_only_unwanted_messages_took_is_free_again() -> None:
    held = holding(messages=3)
    held.add(pulled(0, 1, 2, tags=["paid"]))
    assert not held.room.is_set()
    assert held.take(5) == []
    assert held.room.is_set()


def test_what_cannot_be_unpacked_is_told_and_asked_for_again() -> None:
    held, told = holding(), list[ProtocolError]()
    held.unreadable = told.append
    held.add(pulled(0, 1))
    held.add(Unread(Chunk(QUEUE, 2, 4, record(QUEUE, 2)[:-1]), lambda topic: set()))
    held.add(pulled(4))
    assert [each.queue_offset for each in held.take(5)] == [0, 1]
    assert len(told) == 1
    assert (held.next_offset, held.waiting) == (2, False)


@pytest.mark.parametrize("by_broker", [False, True])
def test_after_a_reset_an_old_call_completes_nothing(by_broker: bool) -> None:
    held = Holding(QUEUE, 5, FlowControl())
    held.add(pulled(5, 6))
    old = held.take(1)
    if by_broker:
        held.add(pulled(start=5, stop=5))
    else:
        held.reset(5)
    held.add(pulled(*range(5, 40)))
    new = held.take(32)
    held.finish(old)
    assert (held.committable, held.in_hand) == (5, 32)
    held.finish(new)
    assert (held.committable, held.in_hand) == (37, 0)
