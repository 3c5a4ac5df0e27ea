"""Members that do not agree are named in the log, on both brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from evenq import Admin, LitePullConsumer, PushConsumer
from evenq.balance import strategy
from evenq.client.group import differing
from evenq.client.group.differing import DifferenceWatch, ask_members
from evenq.client.net.session import Session
from evenq.errors import ConnectError
from evenq.protocol.bodies import Connection, GroupConnections, RunningInfo
from evenq.protocol.command import Command
from evenq.protocol.headers import RunningInfoRequest
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differing, "SETTLING_S", 0.05)
    monkeypatch.setattr(differing, "PAUSE_S", 0.1)


def test_members_that_subscribe_differently_are_both_named(
    any_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    with (
        PushConsumer(any_cluster.namesrv, group, instance="c1") as first,
        LitePullConsumer(any_cluster.namesrv, group, instance="c2") as second,
    ):
        first.subscribe(topic, "paid")
        first.start(lambda messages: None)
        second.subscribe(topic, "refunded")
        second.start()
        text = f"subscription of topic {topic}: paid ({first.client_id}), refunded ({second.client_id})"
        warning = f"members of group {group} differ in {text}. Queues may be read by nobody or twice"
        wait_until(lambda: caplog.text.count(warning) == 2, lambda: f"one warning of each: {caplog.text}")
        with Admin(any_cluster.namesrv) as admin:
            assert admin.members(group, compare=True).differences == (text,)
            assert admin.members(group).differences == ()
        second.subscribe(topic, "paid")
        for member in (first, second):
            watch = member._inner._member.differences
            wait_until(lambda w=watch: not w.found, "the members alike")  # type: ignore[misc]
    assert caplog.text.count("differ in") == 2


def test_members_with_different_settings_are_both_named(
    embedded_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=2)

    def member(nodes: int) -> PushConsumer:
        rule = strategy("CONSISTENT_HASH", virtual_nodes=nodes)
        made = PushConsumer(embedded_cluster.namesrv, group, instance=f"c{nodes}", strategy=rule)
        made.subscribe(topic)
        made.start(lambda messages: None)
        return made

    with member(10) as first, member(20) as second:
        wait_until(lambda: caplog.text.count("differ in settings of the strategy: ") == 2, "one warning of each")
    for consumer, nodes in ((first, 10), (second, 20)):
        assert f"virtual_nodes={nodes}, hash=evenq.balance.hashing.ring_hash ({consumer.client_id})" in caplog.text


class Broker:
    """Knows many members, all alike but for one."""

    def __init__(self, members: int, odd: int) -> None:
        self.names = [f"m{number:03}" for number in range(members)]
        self.odd = self.names[odd]
        self.asked: list[str] = []

    async def connected(self, address: str, group: str) -> GroupConnections:
        return GroupConnections(connection_set=[Connection(client_id=name, client_addr="h:2") for name in self.names])

    async def ask(self, address: str, code: int, header: RunningInfoRequest) -> Command:
        self.asked.append(header.client_id)
        return Command(code, body=self.info(header.client_id).encode())

    def info(self, member: str) -> RunningInfo:
        return RunningInfo(properties={"messageModel": "BROADCASTING" if member == self.odd else "CLUSTERING"})

    def watch(self, member: str) -> DifferenceWatch:
        routes = SimpleNamespace(masters=lambda: {"broker-a": "h:1"}, all_addresses=lambda: {"h:1"})
        session = SimpleNamespace(client_id=member, routes=routes, remote=self)
        return DifferenceWatch(cast(Session, session), "g", lambda: self.info(member))


def test_in_large_groups_each_asks_some_and_none_is_missed() -> None:
    broker = Broker(100, odd=97)
    noticed = []
    for name in broker.names:
        broker.asked.clear()
        watch = broker.watch(name)
        asyncio.run(watch.look())
        assert len(broker.asked) == differing.ASKED
        noticed += [name] * bool(watch.found)
    assert noticed == broker.names[97 - differing.ASKED : 98]


class Replicas:
    """Brokers by address, each with the members that it lists; None for one that does not answer."""

    def __init__(self, **listed: str | None) -> None:
        self.listed = listed
        self.asked: dict[str, str] = {}

    async def connected(self, address: str, group: str) -> GroupConnections | None:
        names = self.listed[address]
        if names is None:
            raise ConnectError(address, "gone")
        return GroupConnections(connection_set=[Connection(client_id=name, client_addr="h:2") for name in names])

    async def ask(self, address: str, code: int, header: RunningInfoRequest) -> Command:
        self.asked[header.client_id] = address
        return Command(code, body=RunningInfo(properties={}).encode())

    def tell(self, masters: dict[str, str]) -> set[str] | None:
        """Who tells of itself when the member "x" asks; None for an answer that may not be whole."""
        routes = SimpleNamespace(masters=lambda: masters, all_addresses=lambda: set(self.listed))
        session = SimpleNamespace(client_id="x", routes=routes, remote=self)
        told = asyncio.run(ask_members(cast(Session, session), "g"))
        return None if told is None else set(told)


def test_without_a_master_members_are_asked_through_its_slave() -> None:
    brokers = Replicas(slave="xy")
    assert brokers.tell({}) == {"y"}
    assert brokers.asked == {"y": "slave"}


def test_members_that_only_a_slave_knows_are_asked_too() -> None:
    brokers = Replicas(a_slave="xyz", master="xz")
    assert brokers.tell({"broker-a": "master"}) == {"y", "z"}
    assert brokers.asked == {"y": "a_slave", "z": "master"}


@pytest.mark.parametrize("listed", [{}, {"slave": "y"}, {"slave": ""}, {"master": "xy", "slave": None}], ids=str)
def test_who_is_there_is_unknown_unless_all_brokers_list_us(listed: dict[str, str | None]) -> None:
    assert Replicas(**listed).tell({}) is None


def test_a_large_group_is_asked_a_few_at_a_time() -> None:
    """A broker refuses a client that waits for more than 64 answers of others."""
    waiting, most = 0, 0

    class Remote:
        async def connected(self, address: str, group: str) -> GroupConnections:
            members = [Connection(client_id=f"m{number}", client_addr="c:1") for number in range(300)]
            return GroupConnections(connection_set=[*members, Connection(client_id="me", client_addr="c:1")])

        async def ask(self, address: str, code: int, header: RunningInfoRequest) -> Command:
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(0)
            waiting -= 1
            return Command(0, body=RunningInfo(properties={"id": header.client_id}).encode())

    async def scenario() -> None:
        routes = SimpleNamespace(masters=lambda: {"a": "a:1"}, all_addresses=lambda: ["a:1"])
        session = cast(Session, SimpleNamespace(client_id="me", remote=Remote(), routes=routes))
        told = await ask_members(session, "g")
        assert told is not None
        assert {member: info and info.properties["id"] for member, info in told.items()} == {
            f"m{number}": f"m{number}" for number in range(300)
        }
        assert most == 32

    asyncio.run(scenario())
