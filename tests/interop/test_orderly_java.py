"""Python and Java members of one group in order: no key is ever consumed out of order, whoever comes, goes or dies."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack

from evenq import HashSelector, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import assign
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.realmq.clients import JavaMember
from tests.waiting import wait_until

QUEUES = 4
KEYS = 16


class Orderly:
    """Members in order, a producer that numbers messages key by key, and when each number was consumed by whom."""

    def __init__(self, namesrv: str, topic: str, group: str, stack: ExitStack) -> None:
        self.namesrv, self.topic, self.group = namesrv, topic, group
        self._stack = stack
        self._lock = threading.Lock()
        self._seen: list[tuple[float, str, int]] = []
        self.python: dict[str, PushConsumer] = {}
        self.java: dict[str, JavaMember] = {}
        self._gone: list[JavaMember] = []
        self.sent = 0
        self._stop = threading.Event()
        self._sender = threading.Thread(target=self._send)
        stack.callback(self.stop_sending)
        self._sender.start()

    def _send(self) -> None:
        with Producer(self.namesrv) as producer:
            while not self._stop.wait(0.002):
                key = f"k-{self.sent % KEYS}"
                message = Message(self.topic, b"%d" % self.sent, keys=[key])
                assert producer.send(message, selector=HashSelector(), arg=key).ok
                self.sent += 1

    def stop_sending(self) -> None:
        self._stop.set()
        self._sender.join()

    def flow(self, count: int) -> None:
        until = self.sent + count
        wait_until(lambda: self.sent >= until, f"{count} more messages sent")

    def _handle(self, messages: list[MessageView]) -> None:
        at = time.time()
        with self._lock:
            self._seen += [(at, message.keys[0], int(message.body)) for message in messages]

    def join(self, name: str, host: JavaHost | None = None) -> None:
        if host is not None:
            self.java[name] = host.push(
                self.namesrv, self.group, self.topic, instance=name, begin=Begin.FIRST, orderly=True
            )
            return
        member = PushConsumer(self.namesrv, self.group, instance=name, begin="first")
        self._stack.callback(member.close)
        member.subscribe(self.topic)
        member.start(self._handle, orderly=True)
        self.python[name] = member

    def leave(self, name: str, *, killed: bool = False) -> None:
        if name in self.python:
            self.python.pop(name).close()
            return
        member = self.java.pop(name)
        self._gone.append(member)
        if killed:
            member.kill()
        else:
            member.stop()

    def held(self) -> dict[str, list[MessageQueue]]:
        return {
            **{member.client_id: member.queues for member in self.python.values()},
            **{member.client_id: member.assignment() for member in self.java.values()},
        }

    def wait_shared(self) -> None:
        queues = [MessageQueue(self.topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(QUEUES)]
        shares = assign("AVG", queues, list(self.held()))
        wait_until(lambda: self.held() == shares, lambda: f"{shares}: {self.held()}", 60)

    def seen(self) -> dict[str, list[int]]:
        """By key, in the order of time."""
        with self._lock:
            events = list(self._seen)
        for member in (*self.java.values(), *self._gone):
            events += [(each.at, each.message.keys[0], int(each.message.body)) for each in member.messages]
        found: defaultdict[str, list[int]] = defaultdict(list)
        for _, key, number in sorted(events):
            found[key].append(number)
        return found

    def check(self) -> int:
        """Everything was consumed, nothing out of order; gives how many came more than once."""
        self.stop_sending()
        wait_until(
            lambda: sum(len(set(numbers)) for numbers in self.seen().values()) >= self.sent,
            lambda: f"{self.sent} messages: {sum(len(set(numbers)) for numbers in self.seen().values())}",
            60,
        )
        for key, numbers in self.seen().items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), f"{key} came out of order: {numbers}"
        return sum(len(numbers) - len(set(numbers)) for numbers in self.seen().values())


def test_no_key_out_of_order_while_members_come_and_go(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    with ExitStack() as stack:
        crowd = Orderly(any_cluster.namesrv, topic, group, stack)
        crowd.join("a-py-1")
        crowd.join("java-1", java)
        crowd.wait_shared()
        crowd.flow(100)
        for change in ("+py-2", "-a-py-1", "+a-py-3", "-java-1"):
            if change.startswith("+"):
                crowd.join(change[1:])
            else:
                crowd.leave(change[1:])
            crowd.wait_shared()
            crowd.flow(50)
        crowd.check()


def test_no_key_out_of_order_when_a_java_member_is_killed(
    any_cluster: AnyCluster, own_java: Callable[[], JavaHost], topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    with ExitStack() as stack:
        crowd = Orderly(any_cluster.namesrv, topic, group, stack)
        crowd.join("a-py-1")
        crowd.join("java-1", own_java())
        crowd.wait_shared()
        crowd.flow(100)
        crowd.leave("java-1", killed=True)
        # its locks are given back in its name, so this takes no minute
        began = time.monotonic()
        crowd.wait_shared()
        assert time.monotonic() - began < 40
        crowd.flow(50)
        crowd.check()
