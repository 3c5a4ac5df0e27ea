"""Where a new group begins: at the first message, behind the last one, or at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from evenq import LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.testing import Clock, EmbeddedCluster, cluster
from tests.clusters import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def running(clock: Clock) -> Iterator[EmbeddedCluster]:
    with cluster(brokers=1, clock=clock.now) as running:
        yield running


def send(namesrv: str, queue: MessageQueue, *numbers: int) -> None:
    with Producer(namesrv) as producer:
        for number in numbers:
            assert producer.send(Message(queue.topic, b"%d" % number), queue=queue).ok


@pytest.mark.parametrize("queues", [1, 4], ids=["asked one by one", "asked together"])
@pytest.mark.parametrize("kind", ["push", "lite pull"])
def test_a_group_begins_at_a_time(running: EmbeddedCluster, clock: Clock, topic: str, kind: str, queues: int) -> None:
    create_topic(running.namesrv, topic, queues=queues)
    queue = MessageQueue(topic, "broker-a", 0)
    send(running.namesrv, queue, 0, 1, 2)
    clock.advance(3600)
    begin = datetime.fromtimestamp(clock.now(), UTC)
    clock.advance(3600)
    send(running.namesrv, queue, 3, 4)
    seen: list[int] = []

    def handle(messages: list[MessageView]) -> None:
        seen.extend(int(message.body) for message in messages)

    if kind == "push":
        with PushConsumer(running.namesrv, "billing", begin=begin) as consumer:
            consumer.subscribe(topic)
            consumer.start(handle)
            wait_until(lambda: len(seen) >= 2, lambda: f"two messages: {seen}")
    else:
        with LitePullConsumer(running.namesrv, "billing", begin=begin) as puller:
            puller.subscribe(topic)
            while len(seen) < 2:
                handle(puller.poll(10))
            assert puller.poll(0) == []
    assert sorted(seen) == [3, 4]
    # from now on the stored offset counts, whatever a member is told
    send(running.namesrv, queue, 5)
    with LitePullConsumer(running.namesrv, "billing", begin="first") as again:
        again.subscribe(topic)
        assert [int(message.body) for message in again.poll(20)] == [5]


def test_a_group_that_begins_at_the_first_message_gets_all(running: EmbeddedCluster, topic: str) -> None:
    create_topic(running.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    send(running.namesrv, queue, 0, 1, 2)
    with LitePullConsumer(running.namesrv, "billing", begin="first") as consumer:
        consumer.subscribe(topic)
        assert [int(message.body) for message in consumer.poll(20)] == [0, 1, 2]
