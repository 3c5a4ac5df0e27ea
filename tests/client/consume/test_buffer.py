import asyncio
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from evenq.client.consume.buffer import Buffer
from evenq.client.consume.intake import in_turn
from evenq.client.read.reading import Chunk
from evenq.client.settings import FlowControl
from evenq.errors import ArgumentError
from evenq.protocol import decode_messages
from tests.client.read.test_reading import QUEUE, record


def chunk(start: int, stop: int, holes: frozenset[int] = frozenset()) -> Chunk:
    return Chunk(QUEUE, start, stop, b"".join(record(QUEUE, n) for n in range(start, stop) if n not in holes))


def buffer(**limits: int) -> Buffer:
    return Buffer(QUEUE, 0, FlowControl(**limits))


def offsets(chunks: list[Chunk]) -> list[int]:
    return [message.queue_offset for each in chunks for message in decode_messages(each.body)]


def look(held: Buffer, limit: int) -> list[Chunk]:
    return [shown.chunk for shown in in_turn([held], limit)[0]]


def test_chunks_are_cut_by_count_and_by_offset() -> None:
    whole = chunk(10, 20, frozenset({12, 19}))
    assert offsets([whole.first(3)]) == [10, 11, 13]
    assert (whole.first(3).stop, whole.first(8), whole.first(100)) == (14, whole, whole)
    assert offsets([whole.up_to(12)]) == [10, 11]
    assert offsets([whole.since(12)]) == [13, 14, 15, 16, 17, 18]
    assert (whole.since(19).body, whole.since(19).start, whole.up_to(30), whole.since(5)) == (b"", 19, whole, whole)


class Caller(RuleBasedStateMachine):
    """A caller that looks, takes, stops in the midst, finishes, while chunks with holes come in."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = buffer()
        self.added: list[int] = []
        self.got: list[int] = []

    @rule(size=st.integers(0, 8), holes=st.sets(st.integers(0, 7)))
    def read(self, size: int, holes: set[int]) -> None:
        at = self.buffer.next_offset
        came = chunk(at, at + size, frozenset(at + hole for hole in holes))
        self.buffer.add(came)
        self.added += offsets([came])

    @rule(limit=st.integers(1, 12))
    def take(self, limit: int) -> None:
        found = look(self.buffer, limit)
        assert len(offsets(found)) <= limit
        for each in found:
            assert self.buffer.hand(self.buffer.epoch, each.stop)
        self.got += offsets(found)

    @rule(limit=st.integers(1, 12), stop=st.integers(0, 12))
    def take_some(self, limit: int, stop: int) -> None:
        for offset in offsets(look(self.buffer, limit))[:stop]:
            assert self.buffer.hand(self.buffer.epoch, offset + 1)
            self.got.append(offset)

    @rule()
    def finish(self) -> None:
        self.buffer.finish()

    @invariant()
    def in_order(self) -> None:
        held = self.buffer
        assert self.got == self.added[: len(self.got)], "every message once, in order"
        assert held.committed <= held.done <= held.given <= held.next_offset
        assert held._bytes == sum(len(each.body) for each in held._chunks)


TestCaller: Any = Caller.TestCase


def test_queues_take_turns_and_chunks_stay_whole_where_one_fits() -> None:
    first, second = buffer(), buffer()
    for at in (0, 4):
        first.add(chunk(at, at + 4))
        second.add(chunk(at, at + 4))

    def seen(limit: int) -> tuple[list[tuple[Buffer, int, int]], bool]:
        found, full = in_turn([first, second], limit)
        return [(shown.buffer, shown.chunk.start, shown.chunk.stop) for shown in found], full

    assert seen(100) == ([(first, 0, 4), (second, 0, 4), (first, 4, 8), (second, 4, 8)], False)
    assert seen(16) == (seen(100)[0], True)
    assert seen(9) == ([(first, 0, 4), (second, 0, 4)], True)
    assert seen(3) == ([(first, 0, 3)], True)
    assert in_turn([], 9) == in_turn([buffer()], 9) == ([], False)


def test_what_was_shown_before_a_jump_is_void() -> None:
    held = buffer()
    held.add(chunk(0, 10))
    epoch = held.epoch
    held.jump(4)
    assert not held.hand(epoch, 10)
    assert (held.given, held.done, look(held, 10)) == (4, 4, [])
    held.add(chunk(4, 6))
    held.add(Chunk(QUEUE, 100, 100, b""))
    assert (held.given, held.next_offset, held.committed) == (100, 100, 0)


def test_a_dropped_or_paused_buffer_gives_nothing() -> None:
    held = buffer()
    held.add(chunk(0, 10))
    held.paused = True
    assert not held.hand(held.epoch, 5)
    held.paused = False
    assert held.hand(held.epoch, 5)
    held.drop()
    assert not held.hand(held.epoch, 6)
    assert (held.given, held.in_hand) == (5, 5)


@given(st.sampled_from([{"messages": 10}, {"bytes": 900}]))
def test_reading_ahead_stops_at_the_limits(limits: dict[str, int]) -> None:
    held = buffer(**limits)
    held.add(chunk(0, 5))
    assert held.room.is_set()
    held.add(chunk(5, 10))
    assert not held.room.is_set()
    held.hand(held.epoch, 5)
    look(held, 1)
    assert held.room.is_set()


def test_letting_go_waits_until_the_caller_has_done() -> None:
    async def scenario() -> None:
        held = buffer()
        held.add(chunk(0, 10))
        held.hand(held.epoch, 3)
        held.drop()
        assert not await held.drained(0.02)
        waiting = asyncio.create_task(held.drained(5))
        await asyncio.sleep(0)
        held.finish()
        assert await waiting
        assert held.committable == 3

    asyncio.run(scenario())


def test_only_what_was_given_can_be_done() -> None:
    held = buffer()
    held.add(chunk(0, 10))
    held.hand(held.epoch, 5)
    assert held.finished(4).committable == 4
    with pytest.raises(ArgumentError, match=r"from 0 \(stored already\) to 5 \(given so far\)"):
        held.finished(6)
    held.take_back()
    assert held.given == 4


def test_what_a_filter_left_out_is_done_with_what_lies_before() -> None:
    held = buffer()
    held.add(Chunk(QUEUE, 0, 1000, b""))
    assert look(held, 10) == []
    assert (held.in_hand, held.committable) == (0, 1000)

    held.add(chunk(1000, 1010, frozenset({1009})))
    held.add(Chunk(QUEUE, 1010, 2000, b""))
    [found] = look(held, 10)
    assert held.hand(held.epoch, found.stop)
    held.skip(held.epoch, 1009, found.stop)
    assert look(held, 10) == []
    assert (held.in_hand, held.committable, held.given) == (1000, 1000, 2000)
    assert held.finished(1005).committable == 1005
    assert held.finished(1009).committable == 2000
    assert held.in_hand == 0


def test_what_was_left_out_before_a_jump_says_nothing_after_it() -> None:
    held = buffer()
    held.add(chunk(0, 10))
    assert held.hand(held.epoch, 10)
    epoch = held.epoch
    held.skip(epoch, 8, 10)
    held.jump(5)
    held.skip(epoch, 5, 10)
    held.add(chunk(5, 12))
    assert held.hand(held.epoch, 12)
    assert held.finished(9).committable == 9


def test_what_was_given_to_one_is_not_given_to_another() -> None:
    held = buffer()
    held.add(chunk(0, 10))
    assert held.hand(held.epoch, 3)
    assert held.hand(held.epoch, 10)
    held.finish()
    assert not held.hand(held.epoch, 4)
    assert (held.given, held.done) == (10, 10)


def test_a_caller_and_a_loop_that_seeks_never_cross() -> None:
    held = buffer()
    ended = threading.Event()
    crossed: list[tuple[int, int]] = []

    def caller() -> None:
        while not ended.is_set():
            epoch = held.epoch
            for stop in range(held.given, held.given + 20):
                if not held.hand(epoch, stop):
                    break
                held.skip(epoch, stop - 1, stop)
                held.finish()

    thread = threading.Thread(target=caller)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(20_000):
            held.jump(number * 7 % 50)
            held.take_back()
            with held._moving:
                if not held.done <= held.given:
                    crossed.append((held.done, held.given))
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        thread.join()
    assert crossed == []
