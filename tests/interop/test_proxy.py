"""Clients whose name server and broker are the remoting port of RocketMQ's proxy."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from evenq import LitePullConsumer, Message, MessageView, Producer, PushConsumer, Retry
from tests.clusters import AnyCluster, create_topic
from tests.realmq import RealProxy, Unavailable
from tests.waiting import wait_until

COUNT = 100


@pytest.fixture(scope="module")
def proxy(real_cluster: AnyCluster) -> Iterator[str]:
    try:
        running = RealProxy(real_cluster.namesrv)
    except Unavailable as missing:
        pytest.skip(str(missing))
    with running:
        yield running.address


@pytest.fixture
def topic(real_cluster: AnyCluster, topic: str) -> str:
    create_topic(real_cluster.namesrv, topic, queues=4)
    return topic


class Handled:
    """Counts the messages of a handler, which gives each back the first time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[bytes] = Counter()

    def __call__(self, messages: list[MessageView]) -> Retry | None:
        with self._lock:
            self._seen.update(message.body for message in messages)
        return Retry(delay_level=1) if any(message.reconsume_times == 0 for message in messages) else None

    def seen(self) -> Counter[bytes]:
        with self._lock:
            return Counter(self._seen)


def test_what_a_push_consumer_gives_back_comes_again(proxy: str, topic: str, group: str) -> None:
    bodies = [b"%d" % number for number in range(COUNT)]
    handled = Handled()
    with Producer(proxy) as producer, PushConsumer(proxy, group, begin="first") as consumer:
        for body in bodies:
            producer.send(Message(topic, body))
        consumer.subscribe(topic)
        consumer.start(handled)
        wait_until(lambda: handled.seen() == Counter(bodies * 2), lambda: f"all twice: {handled.seen().total()}")


def test_queues_move_to_another_member_with_their_offsets(proxy: str, topic: str, group: str) -> None:
    bodies = [b"%d" % number for number in range(COUNT)]
    polled: list[bytes] = []

    def poll(consumer: LitePullConsumer, count: int) -> None:
        enough = len(polled) + count

        def grown() -> bool:
            polled.extend(message.body for message in consumer.poll(1.0))
            return len(polled) >= enough

        wait_until(grown, lambda: f"{enough} messages: {len(polled)}")

    with Producer(proxy) as producer:
        with LitePullConsumer(proxy, group, begin="first", instance="one") as first:
            first.subscribe(topic)
            producer.send_batch([Message(topic, body) for body in bodies[:50]])
            poll(first, 50)
        with LitePullConsumer(proxy, group, begin="first", instance="two") as second:
            second.subscribe(topic)
            producer.send_batch([Message(topic, body) for body in bodies[50:]])
            poll(second, 50)
    assert Counter(polled) == Counter(bodies)
