"""A queue whose lock went to another member while the connection was lost: its first holder stops at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from evenq import Admin, LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import Plan
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live

COUNT = 200


@pytest.fixture
def embedded() -> Iterator[EmbeddedCluster]:
    """A topic with one queue and messages in it."""
    with cluster(brokers=1) as embedded:
        create_topic(embedded.namesrv, "orders", queues=1)
        with Producer(embedded.namesrv) as producer:
            producer.send_batch([Message("orders", b"%d" % number) for number in range(COUNT)])
        yield embedded


class Handled:
    """What a slow handler was given."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, messages: list[MessageView]) -> None:
        with self._lock:
            self.numbers += [int(message.body) for message in messages]
        time.sleep(0.02)


def lose_locks_to_another(embedded: EmbeddedCluster) -> None:
    """What a restart of the broker does to a member that is slower than another one to find it again."""
    [broker] = embedded.brokers.values()

    def lose() -> None:
        for name in ("billing", "HANDOVER-billing"):
            for queue, owner in broker.locks.holders(name).items():
                broker.locks.unlock(name, owner, [queue])
                broker.locks.lock(name, "another", [queue])
        for connection in list(broker.server.connections):
            connection.close()

    embedded.call(lose)


def free_locks(embedded: EmbeddedCluster) -> None:
    [broker] = embedded.brokers.values()

    def free() -> None:
        for name in ("billing", "HANDOVER-billing"):
            broker.locks.unlock(name, "another", list(broker.locks.holders(name)))

    embedded.call(free)


def committed(embedded: EmbeddedCluster) -> int:
    with Admin(embedded.namesrv) as admin:
        return sum(each.offset for each in admin.progress("billing").queues if each.queue.topic == "orders")


@pytest.mark.parametrize("orderly", [False, True])
def test_nothing_more_is_handed_out_or_committed(embedded: EmbeddedCluster, orderly: bool) -> None:
    handled = Handled()
    with PushConsumer(embedded.namesrv, "billing", begin="first", concurrency=1) as consumer:
        consumer.subscribe("orders")
        consumer.start(handled, orderly=orderly)
        wait_until(lambda: len(handled.numbers) > 20, "some messages handled")
        lose_locks_to_another(embedded)
        before = len(handled.numbers)
        wait_until(lambda: not consumer.queues, "the queue released", 5)
        # at most the one that the handler had
        assert len(handled.numbers) <= before + 1
        offset = committed(embedded)
        assert offset < before
        free_locks(embedded)
        wait_until(lambda: {*handled.numbers} == {*range(COUNT)}, lambda: f"all messages: {handled.numbers}")
    # the queue was taken anew where the group was
    twice = {number for number in handled.numbers if handled.numbers.count(number) > 1}
    assert twice <= {*range(offset, before + 1)}
    assert committed(embedded) == COUNT


def test_a_lite_pull_consumer_gives_nothing_more(embedded: EmbeddedCluster) -> None:
    with LitePullConsumer(embedded.namesrv, "billing", begin="first") as consumer:
        consumer.subscribe("orders")
        numbers = [int(message.body) for message in consumer.poll(timeout=10, limit=20)]
        lose_locks_to_another(embedded)
        wait_until(lambda: not consumer.poll(timeout=0), "an end of what was read ahead", 1)
        wait_until(lambda: not consumer.queues, "the queue released", 5)
        free_locks(embedded)
        while {*numbers} != {*range(COUNT)}:
            messages = consumer.poll(timeout=20)
            assert messages, numbers
            numbers += [int(message.body) for message in messages]


def test_listeners_hear_of_a_queue_that_another_locked(embedded: EmbeddedCluster) -> None:
    plans: list[Plan] = []
    assigned: list[list[MessageQueue]] = []

    def hear_assignment(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        if topic == "orders":
            assigned.append(mine)

    queue = MessageQueue("orders", "broker-a", 0)
    with PushConsumer(embedded.namesrv, "billing", begin="first") as consumer:
        consumer.subscribe("orders")
        consumer.on_rebalance(lambda plan: plans.append(plan) if queue in (*plan.lose, *plan.gain) else None)
        consumer.on_assignment(hear_assignment)
        consumer.start(lambda messages: None)
        wait_until(lambda: consumer.queues == [queue], "the queue held")
        lose_locks_to_another(embedded)
        wait_until(lambda: len(plans) >= 3, lambda: f"three plans: {plans}")
        free_locks(embedded)
        wait_until(lambda: len(assigned) >= 3, lambda: f"three assignments: {assigned}")
    assert [(plan.lose, plan.gain) for plan in plans[:3]] == [((), (queue,)), ((queue,), ()), ((), (queue,))]
    assert assigned[:3] == [[queue], [], [queue]]
