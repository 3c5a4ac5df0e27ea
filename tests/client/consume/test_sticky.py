"""Members with ``STICKY`` on a running cluster: every topic is spread over its subscribers, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from evenq import MessageQueue, MessageView, PushConsumer
from evenq.balance.measures import least_moves, moved
from evenq.client.settings import Intervals
from evenq.testing import cluster
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


class Group:
    """The members of one group in this process, and what they hold of two topics of 8 queues each."""

    def __init__(self, namesrv: str, topics: Sequence[str], group: str, stack: ExitStack) -> None:
        self.namesrv, self.topics, self.group = namesrv, topics, group
        self._stack = stack
        self.members: dict[str, PushConsumer] = {}
        self.crashed: list[PushConsumer] = []
        # what listeners of each member take it to have, by what they heard
        self.heard: dict[str, set[MessageQueue]] = {}

    def join(self, name: str, topics: Sequence[str] = (), intervals: Intervals | None = None) -> None:
        def handler(messages: list[MessageView]) -> None:
            """There are no messages."""

        member = PushConsumer(self.namesrv, self.group, instance=name, strategy="STICKY", intervals=intervals)
        heard = self.heard[name] = set()
        member.on_rebalance(lambda plan: heard.update(plan.gain))
        member.on_rebalance(lambda plan: heard.difference_update(plan.lose))
        self._stack.callback(self._close, member)
        for topic in topics or self.topics:
            member.subscribe(topic)
        member.start(handler)
        self.members[name] = member

    def join_at_once(self, *names: str) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.join, names))

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def crash(self, name: str) -> None:
        """What a kill looks like to the brokers: the connections are gone, nothing was handed over."""
        member = self.members.pop(name)
        self.crashed.append(member)
        session = member._inner._session

        def cut() -> None:
            for task in session._tasks:
                task.cancel()
            member._inner._dispatcher = None
            session._closed = True
            session.connections.close()

        member._in_loop(cut)

    def _close(self, member: PushConsumer) -> None:
        if member not in self.crashed:
            member.close()

    def held(self) -> dict[str, list[MessageQueue]]:
        return {name: member.queues for name, member in self.members.items()}

    def counts(self, held: dict[str, list[MessageQueue]]) -> list[list[int]]:
        """By topic, how many of its queues each member holds, ascending."""
        return [
            sorted(sum(queue.topic == topic for queue in queues) for queues in held.values()) for topic in self.topics
        ]

    def wait_for(self, *counts: list[int]) -> dict[str, list[MessageQueue]]:
        """Wait until the members hold so many queues of each topic, no two of them the same one."""

        def shared() -> dict[str, list[MessageQueue]] | None:
            held = self.held()
            queues = [queue for mine in held.values() for queue in mine]
            return held if self.counts(held) == list(counts) and len(set(queues)) == 16 else None

        # sooner than a lock that nobody uses expires
        return wait_until(shared, lambda: f"{counts}: {self.held()}", seconds=50)


@pytest.fixture
def members(embedded_cluster: AnyCluster, topic: str, group: str) -> Iterator[Group]:
    topics = [f"{topic}-hot", f"{topic}-cold"]
    for name in topics:
        create_topic(embedded_cluster.namesrv, name, queues=4)
    with ExitStack() as stack:
        yield Group(embedded_cluster.namesrv, topics, group, stack)


def test_two_members_share_each_of_two_topics(members: Group) -> None:
    members.join("c1")
    members.wait_for([8], [8])
    members.join("c2")
    held = members.wait_for([4, 4], [4, 4])
    for name, queues in held.items():
        assert {queue for queue in members.heard[name] if queue.topic in members.topics} == {*queues}


def test_four_members_that_join_at_once_share_each_topic(members: Group) -> None:
    members.join_at_once("c1", "c2", "c3", "c4")
    members.wait_for([2, 2, 2, 2], [2, 2, 2, 2])


def test_when_members_leave_each_topic_stays_spread(members: Group) -> None:
    members.join_at_once("c1", "c2", "c3", "c4")
    before = members.wait_for([2, 2, 2, 2], [2, 2, 2, 2])
    queues = [queue for mine in before.values() for queue in mine]
    members.leave("c2")
    after = members.wait_for([2, 3, 3], [2, 3, 3])
    assert {len(mine) for mine in after.values()} == {5, 6}
    assert len(moved(before, after)) == least_moves(before, after, queues) == 4
    members.leave("c4")
    last = members.wait_for([4, 4], [4, 4])
    assert len(moved(after, last)) == least_moves(after, last, queues)


def test_a_topic_is_shared_by_those_that_subscribe_to_it(members: Group) -> None:
    hot, cold = members.topics
    members.join("both")
    members.join("hot", [hot])
    members.join("cold", [cold])
    members.wait_for([0, 4, 4], [0, 4, 4])
    assert {queue.topic for queue in members.members["hot"].queues} == {hot}
    members.leave("cold")
    members.wait_for([4, 4], [0, 8])


@pytest.mark.live
def test_after_kills_and_restarts_every_queue_has_one_holder(topic: str, group: str) -> None:
    """Brokers keep locks in memory: after a restart they know of none."""
    topics = [f"{topic}-hot", f"{topic}-cold"]
    with cluster(brokers=2) as own, ExitStack() as stack:
        for name in topics:
            create_topic(own.namesrv, name, queues=4)
        members = Group(own.namesrv, topics, group, stack)
        for name in ("c1", "c2", "c3", "c4"):
            # a member that saw a topic without a broker finds it again when it next asks for the route
            members.join(name, intervals=Intervals(routes=1))
        members.wait_for([2, 2, 2, 2], [2, 2, 2, 2])
        for victim in ("c2", "c4"):
            members.crash(victim)
            for broker in ("broker-a", "broker-b"):
                own.stop_broker(broker)
                own.start_broker(broker)
        members.wait_for([4, 4], [4, 4])
