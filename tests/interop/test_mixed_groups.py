"""Groups of Python and Java members while they come and go."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from evenq import MessageQueue, MessageView, PushConsumer
from evenq.balance import assign
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.realmq.clients import JavaMember
from tests.traffic import Traffic
from tests.waiting import wait_until

QUEUES = 8


class MixedGroup:
    """Python and Java members of one group; each queue's holder, and everything consumed."""

    def __init__(self, namesrv: str, topic: str, group: str, strategy: str, stack: ExitStack) -> None:
        self.namesrv, self.topic, self.group, self.strategy = namesrv, topic, group, strategy
        self._stack = stack
        self._lock = threading.Lock()
        self._consumed: list[bytes] = []
        self.python: dict[str, PushConsumer] = {}
        self.java: dict[str, JavaMember] = {}
        self._left: list[JavaMember] = []

    def join(self, name: str, host: JavaHost | None = None) -> None:
        if host is not None:
            strategy = "AVG" if self.strategy == "STICKY" else self.strategy
            self.java[name] = host.push(
                self.namesrv, self.group, self.topic, strategy=strategy, instance=name, begin=Begin.FIRST
            )
            return

        def handler(messages: list[MessageView]) -> None:
            with self._lock:
                self._consumed.extend(message.body for message in messages)

        member = PushConsumer(self.namesrv, self.group, strategy=self.strategy, instance=name, begin="first")
        self._stack.callback(member.close)
        member.subscribe(self.topic)
        member.start(handler)
        self.python[name] = member

    def leave(self, name: str) -> None:
        if name in self.python:
            self.python.pop(name).close()
        else:
            member = self.java.pop(name)
            self._left.append(member)
            member.stop()

    def consumed(self) -> list[bytes]:
        with self._lock:
            mine = list(self._consumed)
        java = [*self.java.values(), *self._left]
        return mine + [received.message.body for member in java for received in member.messages]

    def held(self) -> dict[str, list[MessageQueue]]:
        return {
            **{member.client_id: member.queues for member in self.python.values()},
            **{member.client_id: member.assignment() for member in self.java.values()},
        }

    def wait_shared(self) -> None:
        """Wait until every member holds exactly what the strategy gives it."""
        queues = [MessageQueue(self.topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(QUEUES)]
        strategy = "AVG" if self.strategy == "STICKY" else self.strategy
        members = [*(each.client_id for each in self.python.values()), *(each.client_id for each in self.java.values())]
        shares = assign(strategy, queues, members)
        wait_until(lambda: self.held() == shares, lambda: f"{shares}: {self.held()}", 60)


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "STICKY"])
def test_each_queue_has_one_holder_and_nothing_is_lost(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str, strategy: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    with ExitStack() as stack:
        crowd = MixedGroup(any_cluster.namesrv, topic, group, strategy, stack)
        crowd.join("py-1")
        crowd.join("java-1", java)
        crowd.join("py-2")
        crowd.wait_shared()
        with Traffic(crowd.namesrv, topic) as traffic:
            for change in ("-py-2", "+java-2", "-java-1", "+py-3"):
                name = change[1:]
                if change.startswith("-"):
                    crowd.leave(name)
                else:
                    crowd.join(name, java if name.startswith("java") else None)
                crowd.wait_shared()
                traffic.flow(50)
        sent = set(traffic.sent)
        wait_until(lambda: set(crowd.consumed()) >= sent, lambda: f"{len(sent)}: {len(set(crowd.consumed()))}", 60)
        for member in crowd.java.values():
            member.stop()
