"""Readers of a queue that a master and its slaves have: each a broker of a few lines."""

import asyncio
from collections.abc import Mapping
from itertools import cycle
from typing import cast

import pytest

from evenq.balance import PublishRoute
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.client.read import following, reading
from evenq.client.read.following import Follower
from evenq.client.read.ranges import QueueRange
from evenq.client.read.reading import Chunk, Pace, RangeReader
from evenq.client.settings import Timeouts
from evenq.errors import ConnectError, OffsetsLost
from evenq.protocol import decode_messages
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import subscription
from evenq.protocol.headers import PullRequest
from evenq.supervision import Outages
from tests.client.read.test_reading import QUEUE, FakeBroker


class Replica(FakeBroker):
    """A broker that says which replica to pull from next, and may refuse pulls. A slave has nothing behind its end,
    and says so in Java's way."""

    def __init__(self, end: int, *, suggests: int = 0, refuses: bool = False, is_slave: bool = False) -> None:
        super().__init__(held=(0, end), most=cycle([10]))
        self.suggests, self.refuses, self.is_slave = suggests, refuses, is_slave

    def _answer(self, header: PullRequest) -> Command:
        if self.refuses:
            return Command(ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]")
        if self.is_slave and header.queue_offset >= self.held[1]:
            answer = self._reply(ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset)
        else:
            answer = super()._answer(header)
        answer.ext["suggestWhichBrokerId"] = str(self.suggests)
        return answer


class Cluster:
    """A session that knows the replicas by their ids. Those that are not ``reachable`` stand in the route only."""

    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self.timeouts = Timeouts()
        self.outages = Outages()
        self.routes = self.connections = self
        self.replicas = dict(replicas)
        self.unreachable: set[int] = set()
        self.route = self._make_route()

    def _make_route(self) -> Route:
        return Route(QUEUE.topic, PublishRoute.of(()), (QUEUE,), {QUEUE.broker: {n: str(n) for n in self.replicas}})

    def known(self, topic: str) -> Route:
        return self.route

    async def refresh(self, topic: str) -> Route:
        self.route = self._make_route()
        return self.route

    def live(self, address: str) -> Replica | None:
        return self.replicas[int(address)] if int(address) in self.replicas.keys() - self.unreachable else None

    async def get(self, address: str) -> Replica:
        connection = self.live(address)
        if connection is None:
            raise ConnectError(address, "refused")
        return connection

    def asked(self) -> dict[int, list[int]]:
        """The offsets that each replica was asked for, since the last question."""
        found = {n: [header.queue_offset for header in replica.asked] for n, replica in self.replicas.items()}
        for replica in self.replicas.values():
            replica.asked.clear()
        return found


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE", "LAST_PAUSE", "EMPTY_PAUSE"):
        monkeypatch.setattr(following, name, 0)
    monkeypatch.setattr(reading, "PAUSES", (0, 0, 0))


class Reading:
    """Follows the queue of a cluster from its beginning; one pull at a time."""

    def __init__(self, cluster: Cluster) -> None:
        wanted = subscription(QUEUE.topic, "*", version=0)
        follower = Follower(
            cast(Session, cluster), "g", QUEUE, 0, subscription=lambda: wanted, pace=Pace(), room=lambda: 0
        )
        self._chunks = follower.chunks()

    async def next(self) -> list[int]:
        async with asyncio.timeout(5):
            return offsets([await anext(self._chunks)])


def offsets(chunks: list[Chunk]) -> list[int]:
    return [message.queue_offset for chunk in chunks for message in decode_messages(chunk.body)]


def test_pulls_go_where_the_last_answer_says() -> None:
    async def scenario() -> None:
        master, slave = Replica(100), Replica(100, is_slave=True)
        cluster = Cluster({0: master, 1: slave})
        read = Reading(cluster)
        master.suggests = slave.suggests = 1
        assert await read.next() + await read.next() == list(range(20))
        assert cluster.asked() == {0: [0], 1: [10]}
        slave.suggests = 0
        assert await read.next() == list(range(20, 30))
        master.suggests = 0
        assert await read.next() + await read.next() == list(range(30, 50))
        assert cluster.asked() == {0: [30, 40], 1: [20]}

    asyncio.run(scenario())


@pytest.mark.parametrize("left", [0, 2])
def test_a_replica_that_is_gone_gives_way_to_another(left: int) -> None:
    async def scenario() -> None:
        cluster = Cluster({n: Replica(100, suggests=1, is_slave=n > 0) for n in (0, 1, 2)})
        read = Reading(cluster)
        await read.next()
        await read.next()
        cluster.asked()
        for n in {0, 1, 2} - {left}:
            cluster.replicas.pop(n).closed = True
        await cluster.refresh(QUEUE.topic)
        assert await read.next() == list(range(20, 30))
        assert cluster.asked() == {left: [20]}

    asyncio.run(scenario())


def test_a_master_that_cannot_be_reached_gives_way_to_its_slave() -> None:
    async def scenario() -> None:
        cluster = Cluster({0: Replica(100), 1: Replica(100, is_slave=True)})
        cluster.unreachable.add(0)
        read = Reading(cluster)
        assert await read.next() == list(range(10))
        assert cluster.asked() == {0: [], 1: [0]}
        # the name server tells every 30 s of the same brokers
        cluster.unreachable.clear()
        await cluster.refresh(QUEUE.topic)
        assert await read.next() == list(range(10, 20))
        assert cluster.asked() == {0: [10], 1: []}

    asyncio.run(scenario())


def test_a_slave_that_refuses_pulls_is_left() -> None:
    async def scenario() -> None:
        cluster = Cluster({0: Replica(100, suggests=1), 1: Replica(100, refuses=True)})
        read = Reading(cluster)
        assert await read.next() + await read.next() == list(range(20))
        assert cluster.asked() == {0: [0, 10], 1: [10]}

    asyncio.run(scenario())


def read_range(cluster: Cluster, stop: int) -> list[int]:
    async def collect() -> list[Chunk]:
        reader = RangeReader(cast(Session, cluster), "g")
        return [chunk async for chunk in reader.read([QueueRange(QUEUE, 0, stop)])]

    return offsets(asyncio.run(collect()))


@pytest.mark.parametrize("refuses", [False, True])
def test_what_a_slave_does_not_give_is_read_from_its_master(refuses: bool) -> None:
    cluster = Cluster({0: Replica(100, suggests=1), 1: Replica(50, refuses=refuses, is_slave=True)})
    assert read_range(cluster, 100) == list(range(100))


def test_what_a_slave_does_not_have_yet_is_not_lost() -> None:
    with pytest.raises(ConnectError, match=r"no offset 50 of .*orders.* \(it holds 0 up to 50\)"):
        read_range(Cluster({1: Replica(50, is_slave=True)}), 100)
    with pytest.raises(OffsetsLost):
        read_range(Cluster({0: Replica(50)}), 100)
