"""Members that do not agree are named in the log, on both brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from evenq import Admin, LitePullConsumer, PushConsumer
from evenq.balance import strategy
from evenq.client.group import differing
from evenq.client.group.differing import DifferenceWatch
from evenq.client.net.session import Session
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
        routes = SimpleNamespace(masters=lambda: {"broker-a": "h:1"})
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
