"""A queue that grows while it is followed, on the few-line broker of the range reader's tests."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.net.connection import Waiter
from evenq.client.net.session import Session
from evenq.client.read import following
from evenq.client.read.following import Follower
from evenq.client.read.reading import WINDOW, Chunk, Pace
from evenq.protocol import decode_messages
from evenq.protocol.bodies import Subscription
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import subscription
from evenq.protocol.flags import PullFlag
from evenq.protocol.headers import PullRequest
from tests.client.read.test_reading import QUEUE, FakeBroker


class Growing(FakeBroker):
    """Keeps a pull at the end of the queue that may wait, until the queue grows."""

    def __init__(self, end: int, most: Iterator[int], matches: Callable[[int], bool] = lambda offset: True) -> None:
        super().__init__(held=(0, end), most=most, matches=matches)
        self.waiting: list[tuple[Waiter, PullRequest]] = []

    def _settle(self, waiter: Waiter, header: PullRequest, fails: bool) -> None:
        if not fails and header.queue_offset == self.held[1] and header.sys_flag & PullFlag.SUSPEND:
            self.waiting.append((waiter, header))
        else:
            super()._settle(waiter, header, fails)

    def grow(self, count: int) -> None:
        self.held = (self.held[0], self.held[1] + count)
        waiting, self.waiting = self.waiting, []
        for waiter, header in waiting:
            self._settle(waiter, header, False)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_PAUSE", 0)
    monkeypatch.setattr(following, "LAST_PAUSE", 0)
    monkeypatch.setattr(following, "EMPTY_PAUSE", 0)


def follower(broker: FakeBroker, offset: int = 0, expression: str = "*", room: int = 10_000) -> Follower:
    wanted = subscription(QUEUE.topic, expression, version=0)
    return Follower(
        cast(Session, broker),
        "g",
        QUEUE,
        offset,
        subscription=lambda: wanted,
        pace=Pace(),
        room=lambda: room,
    )


def follow(broker: FakeBroker, until: int, offset: int = 0, expression: str = "*", room: int = 10_000) -> list[Chunk]:
    """All chunks up to the offset."""

    async def collect() -> list[Chunk]:
        found: list[Chunk] = []
        async with asyncio.timeout(20):
            async for chunk in follower(broker, offset, expression, room).chunks():
                found.append(chunk)
                if chunk.stop >= until:
                    break
        return found

    return asyncio.run(collect())


def offsets(chunks: list[Chunk]) -> list[int]:
    return [message.queue_offset for chunk in chunks for message in decode_messages(chunk.body)]


@given(
    start=st.integers(0, 50),
    size=st.integers(1, 1500),
    most=st.lists(st.integers(1, 100), min_size=1, max_size=8),
    failures=st.sets(st.integers(1, 40), max_size=5),
    keep=st.none() | st.sets(st.integers(0, 6)),
    room=st.integers(0, 300),
)
def test_every_offset_once_and_in_order(
    start: int, size: int, most: list[int], failures: set[int], keep: set[int] | None, room: int
) -> None:
    def matches(offset: int) -> bool:
        return keep is None or offset % 7 in keep

    end = start + size
    broker = FakeBroker(held=(0, end), most=cycle(most), matches=matches, scan=97, failures=failures)
    chunks = follow(broker, end, start, expression="*" if keep is None else "paid", room=room)
    assert offsets(chunks) == [offset for offset in range(start, end) if matches(offset)]
    at = start
    for chunk in chunks:
        assert chunk.start == at, "a chunk begins where the one before ended"
        at = chunk.stop


def test_what_comes_later_comes_at_once_and_a_backlog_by_many_pulls() -> None:
    async def scenario() -> None:
        broker = Growing(0, cycle([32]))
        chunks = follower(broker).chunks()
        seen: list[int] = []
        waiting = asyncio.ensure_future(anext(chunks))
        for size in (1, 1, 5, 6400):
            await turns(lambda: bool(broker.waiting))
            assert len(broker.waiting) == 1, "one pull waits at the end of the queue"
            broker.grow(size)
            while len(seen) < broker.held[1]:
                seen += offsets([await waiting])
                waiting = asyncio.ensure_future(anext(chunks))
        assert seen == list(range(6407))
        # single messages at the end of the queue must not have spoilt the pace
        assert broker.most_in_flight == WINDOW
        assert len(broker.asked) < 6400 / 32 + 20
        waiting.cancel()

    asyncio.run(scenario())


def test_room_limits_what_is_asked_for() -> None:
    broker = FakeBroker(held=(0, 3200), most=cycle([32]))
    follow(broker, 3200, room=100)
    assert broker.most_in_flight <= 4


def test_where_the_broker_holds_nothing_it_says_where_to_go_on() -> None:
    [jump, *rest] = follow(FakeBroker(held=(100, 500)), 500, offset=10)
    assert (jump.start, jump.stop, jump.body) == (100, 100, b"")
    assert offsets(rest) == list(range(100, 500))
    [jump, *rest] = follow(FakeBroker(held=(0, 50)), 50, offset=300)
    assert (jump.start, jump.stop) == (50, 50)
    assert rest == []


def test_a_reset_by_the_broker_takes_effect_whichever_pull_it_meets() -> None:
    class Reset(FakeBroker):
        def _answer(self, header: PullRequest) -> Command:
            if len(self.asked) >= 20 and not moved:
                moved.append(header.queue_offset)
                return self._reply(ResponseCode.PULL_OFFSET_MOVED, 7)
            return super()._answer(header)

    moved: list[int] = []
    seen = offsets(follow(Reset(held=(0, 2000), most=cycle([32])), 2000))
    [at] = moved
    assert seen == [*range(at), *range(7, 2000)]


def test_a_subscription_that_changes_counts_for_the_next_pulls() -> None:
    async def scenario() -> None:
        broker = Growing(0, cycle([32]))
        wanted = [subscription(QUEUE.topic, "a", version=0)]

        def current() -> Subscription:
            return wanted[-1]

        reader = Follower(cast(Session, broker), "g", QUEUE, 0, subscription=current, pace=Pace(), room=lambda: 1000)
        chunks = reader.chunks()
        waiting = asyncio.ensure_future(anext(chunks))
        await turns(lambda: bool(broker.waiting))
        wanted.append(subscription(QUEUE.topic, "b", version=1))
        broker.grow(1)
        await waiting
        broker.grow(1)
        await anext(chunks)
        assert [header.subscription for header in broker.asked] == ["a", "b"]
        await chunks.aclose()

    asyncio.run(scenario())


def test_an_end_drops_what_is_in_flight() -> None:
    async def scenario() -> None:
        broker = Growing(0, cycle([32]))
        reader = follower(broker)
        task = asyncio.ensure_future(anext(reader.chunks()))
        await turns(lambda: bool(broker.waiting))
        task.cancel()
        await asyncio.wait([task])
        broker.grow(1)
        assert len(reader._flights) == 0

    asyncio.run(scenario())


async def turns(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)
