"""The strategies that need settings, in groups of Python and Java members: each queue has one holder, none is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from evenq import MessageQueue, MessageView, PushConsumer
from evenq.balance import StrategyLike, assign, strategy
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.realmq.clients import JavaMember
from tests.traffic import Traffic
from tests.waiting import wait_until

QUEUES = 8


class Trio:
    """One Java member that may be killed, one that stays, and a Python member."""

    def __init__(self, namesrv: str, topic: str, group: str) -> None:
        self.namesrv, self.topic, self.group = namesrv, topic, group
        self._lock = threading.Lock()
        self._consumed: list[bytes] = []
        self.java: list[JavaMember] = []
        self.killed: list[JavaMember] = []
        self.python: PushConsumer | None = None

    def join(self, chosen: StrategyLike) -> PushConsumer:
        def handler(messages: list[MessageView]) -> None:
            with self._lock:
                self._consumed += [message.body for message in messages]

        self.python = PushConsumer(self.namesrv, self.group, strategy=chosen, instance="py", begin="first")
        self.python.subscribe(self.topic)
        self.python.start(handler)
        return self.python

    def join_java(self, host: JavaHost, name: str, kind: str, **settings: Any) -> None:
        member = host.push(
            self.namesrv, self.group, self.topic, strategy=kind, instance=name, begin=Begin.FIRST, **settings
        )
        self.java.append(member)

    def kill(self) -> None:
        member = self.java.pop()
        self.killed.append(member)
        member.kill()

    def consumed(self) -> set[bytes]:
        with self._lock:
            found = set(self._consumed)
        return found | {each.message.body for member in (*self.java, *self.killed) for each in member.messages}

    def held(self) -> dict[str, list[MessageQueue]]:
        assert self.python is not None
        return {
            self.python.client_id: self.python.queues,
            **{member.client_id: member.assignment() for member in self.java},
        }

    def wait_for(self, shares: dict[str, list[MessageQueue]]) -> None:
        wanted = {member: sorted(queues) for member, queues in shares.items()}
        wait_until(lambda: self.held() == wanted, lambda: f"{wanted}: {self.held()}", 60)


def queues_of(topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(QUEUES)]


def test_rooms_keep_their_queues_and_lend_them_when_everybody_has_left(
    any_cluster: AnyCluster, java: JavaHost, own_java: Callable[[], JavaHost], topic: str, group: str
) -> None:
    rooms = {"broker-a": "east", "broker-b": "west", "py": "east", "java-east": "east", "java-west": "west"}
    chosen = strategy(
        "MACHINE_ROOM_NEARBY",
        inner="AVG_BY_CIRCLE",
        broker_room=rooms.__getitem__,
        member_room=lambda member: rooms[member.partition("@")[2]],
    )
    settings = {"inner": "AVG_BY_CIRCLE", "broker_rooms": rooms, "member_rooms": rooms}
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    with ExitStack() as stack:
        trio = Trio(any_cluster.namesrv, topic, group)
        stack.enter_context(trio.join(chosen))
        trio.join_java(java, "java-east", "MACHINE_ROOM_NEARBY", **settings)
        trio.join_java(own_java(), "java-west", "MACHINE_ROOM_NEARBY", **settings)
        shares = assign(chosen, queues_of(topic), list(trio.held()))
        assert sorted(map(len, shares.values())) == [4, 4, 8]
        trio.wait_for(shares)
        with Traffic(trio.namesrv, topic) as traffic:
            traffic.flow(50)
            trio.kill()
            trio.wait_for(assign(chosen, queues_of(topic), list(trio.held())))
            traffic.flow(50)
        wait_until(lambda: trio.consumed() >= set(traffic.sent), "everything consumed", 60)


def test_fixed_shares_are_taken_as_they_are_given(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    every = queues_of(topic)
    parts = {"py": every[:5], "java-1": every[5:11], "java-2": every[11:]}
    with ExitStack() as stack:
        trio = Trio(any_cluster.namesrv, topic, group)
        stack.enter_context(trio.join(strategy("CONFIG", queues=parts["py"])))
        for name in ("java-1", "java-2"):
            trio.join_java(java, name, "CONFIG", queues=parts[name])
        trio.wait_for({member: parts[member.partition("@")[2]] for member in trio.held()})
        with Traffic(trio.namesrv, topic) as traffic:
            traffic.flow(100)
        wait_until(lambda: trio.consumed() >= set(traffic.sent), "everything consumed", 60)
