"""A member that is missing from the list for a moment is not taken for dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evenq.balance import Plan
from evenq.client.group import rebalance as module
from evenq.client.group.rebalance import Rebalancer
from evenq.client.group.shares import ComputedShares
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from evenq.protocol.bodies import BrokerData, Connection, GroupConnections, QueueData, TopicRoute
from evenq.supervision import Outages

ROUTE = Route.of(
    "orders",
    TopicRoute(
        broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "b:1", 1: "b:2"})],
        queue_datas=[QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6)],
    ),
)


class Group:
    """One member's view of a group: what brokers list, and whom the member takes for dead."""

    def __init__(self) -> None:
        self.listed: Collection[str] = ()
        # the addresses that do not answer
        self.away: set[str] = set()
        self.dead: list[str] = []
        self.known: list[list[str]] = []
        self.on_connection: list[Callable[[str], None]] = []
        session = SimpleNamespace(
            client_id="me",
            routes=self,
            remote=self,
            outages=Outages(),
            on_connection=self.on_connection,
            spawn=self.spawn,
            repeat=self.repeat,
        )
        shares = ComputedShares("AVG", "g", "me")
        self.rebalancer = Rebalancer(cast(Session, session), "g", shares, lambda: ["orders"], self)

    # the session, as far as it is asked

    async def get(self, topic: str) -> Route:
        return ROUTE

    async def members(self, address: str, group: str) -> list[str]:
        if address in self.away:
            raise ConnectError(address, "it hung up")
        return list(self.listed)

    async def connected(self, address: str, group: str) -> GroupConnections:
        return GroupConnections(connection_set=[Connection(client_id="me", client_addr="h:1", language="PYTHON")])

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(work)

    async def repeat(self, step: object, name: str) -> None:
        """Nothing is looked at but what the test looks at."""

    # who carries plans out

    @property
    def topics(self) -> set[str]:
        return set()

    def held(self, topic: str) -> set[MessageQueue]:
        return set()

    def carry_out(self, plan: Plan) -> None: ...

    def members_are(self, members: list[str], gone: Iterable[str]) -> None:
        self.known.append(members)
        self.dead += gone

    async def look(self, *listed: str) -> None:
        self.listed = listed
        await self.rebalancer.once()

    def change(self, address: str) -> None:
        """The connection is made or lost."""
        for notice in self.on_connection:
            notice(address)


def test_a_member_that_is_back_soon_keeps_its_locks() -> None:
    async def scenario() -> None:
        group = Group()
        await group.look("me", "other")
        await group.look("me")
        assert group.dead == []
        await group.look("me", "other")
        await group.look("me", "other")
        assert group.dead == []

    asyncio.run(scenario())


def test_a_member_that_stays_away_is_dead_once() -> None:
    async def scenario() -> None:
        group = Group()
        await group.look("me", "other")
        async with asyncio.timeout(20):
            while not group.dead:
                await group.look("me")
                await asyncio.sleep(0.01)
        for _ in range(5):
            await group.look("me")
        assert group.dead == ["other"]

    asyncio.run(scenario())


def test_after_a_reconnect_members_that_a_broker_does_not_list_yet_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEAD_AFTER_S", 0)

    async def scenario() -> None:
        group = Group()
        group.rebalancer.start()
        await group.look("me", "other")
        group.change("b:1")
        await group.look("me")
        assert (group.known[-1], group.dead) == (["me", "other"], [])
        # it does not come back
        monkeypatch.setattr(module, "RECONNECT_GRACE_S", 0)
        await group.look("me")
        assert (group.known[-1], group.dead) == (["me"], ["other"])
        await group.rebalancer.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("answers", [True, False])
def test_an_address_that_keeps_hanging_up_keeps_nobody_alive(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    monkeypatch.setattr(module, "DEAD_AFTER_S", 0.05)
    monkeypatch.setattr(module, "RECONNECT_GRACE_S", 0.5 if answers else 60)
    monkeypatch.setattr(module, "RECONNECT_GRACE_MAX_S", 0.5)

    async def scenario() -> None:
        group = Group()
        group.rebalancer.start()
        await group.look("me", "other")
        if not answers:
            group.away.add("b:2")
        async with asyncio.timeout(10):
            while not group.dead:
                group.change("b:2")
                await group.look("me")
                await asyncio.sleep(0.01)
        assert group.dead == ["other"]
        await group.rebalancer.stop()

    asyncio.run(scenario())
