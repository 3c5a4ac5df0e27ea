"""Flow control over several queues, and the first moments of a queue that was gained."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from evenq import (
    ArgumentError,
    FlowControl,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
)
from evenq.client.consume.flow import SharedLimits
from evenq.client.read.following import LEAST
from evenq.testing import EmbeddedCluster
from tests.clusters import create_topic
from tests.waiting import wait_until

PER_QUEUE = 300


def fill(namesrv: str, topic: str, queues: int) -> None:
    create_topic(namesrv, topic, queues=queues)
    with Producer(namesrv) as producer:
        for broker in ("broker-a", "broker-b"):
            for number in range(queues):
                batch = [Message(topic, b"x" * 100) for _ in range(PER_QUEUE)]
                producer.send_batch(batch, queue=MessageQueue(topic, broker, number), split=True)


def test_limits_of_a_queue_are_its_own_or_its_part_of_the_shared_ones() -> None:
    limits = FlowControl(messages=100, topic_messages=240, total_messages=400, topic_bytes=1000, total_bytes=500)
    assert limits.for_queue(of_topic=2, of_all=2).messages == 100
    assert limits.for_queue(of_topic=4, of_all=5).messages == 60
    assert limits.for_queue(of_topic=4, of_all=10).messages == 40
    assert limits.for_queue(of_topic=4, of_all=10).bytes == 50
    assert limits.for_queue(of_topic=1000, of_all=1000).messages == 1
    assert not limits.for_queue(of_topic=1, of_all=1).is_shared
    with pytest.raises(ArgumentError, match=r"FlowControl\.total_bytes"):
        FlowControl(total_bytes=0)


class Limited:
    def __init__(self, topic: str) -> None:
        self.queue = MessageQueue(topic, "b", 0)
        self.limits = FlowControl()

    def limit(self, limits: FlowControl) -> None:
        self.limits = limits


def test_each_topic_has_its_own_part() -> None:
    held = [Limited("a"), Limited("a"), Limited("b")]
    SharedLimits(FlowControl(topic_messages=100, total_messages=240), lambda: held).divide()
    assert [each.limits.messages for each in held] == [50, 50, 80]


@pytest.mark.parametrize("limits", [FlowControl(topic_messages=160), FlowControl(total_messages=160)])
def test_a_push_consumer_holds_no_more_than_its_shared_limit(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, limits: FlowControl
) -> None:
    fill(embedded_cluster.namesrv, topic, queues=2)
    free = threading.Event()
    handled: list[MessageView] = []

    def handle(messages: list[MessageView]) -> None:
        free.wait(30)
        handled.extend(messages)

    with PushConsumer(embedded_cluster.namesrv, group, begin="first", flow_control=limits) as consumer:
        consumer.subscribe(topic)
        consumer.start(handle)
        member = consumer._inner._member

        def cached() -> list[int]:
            return [holding.cached.count for holding in member.holdings if holding.queue.topic == topic]

        wait_until(lambda: len(cached()) == 4 and min(cached()) >= LEAST, lambda: f"four queues to be read: {cached()}")
        # a pull that began before the limit was reached may bring as many again
        assert max(cached()) <= 160 // 4 + LEAST
        free.set()
        wait_until(lambda: len(handled) == 4 * PER_QUEUE, lambda: f"all messages: {len(handled)}")


def test_parts_grow_when_queues_go_to_another_member(embedded_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    fill(embedded_cluster.namesrv, topic, queues=4)
    limits = FlowControl(total_messages=800)

    def parts(consumer: LitePullConsumer) -> set[int]:
        return {buffer.limits.messages for buffer in consumer._inner._member.holdings}

    with LitePullConsumer(embedded_cluster.namesrv, group, begin="first", flow_control=limits) as one:
        one.subscribe(topic)
        one.start()
        wait_until(lambda: len(one.queues) == 8 and parts(one) == {100}, lambda: f"eight parts: {parts(one)}")
        with LitePullConsumer(embedded_cluster.namesrv, group, begin="first", flow_control=limits) as two:
            two.subscribe(topic)
            two.start()
            wait_until(lambda: parts(one) == parts(two) == {200}, lambda: f"four each: {parts(one)} {parts(two)}")


def test_assigned_queues_share_the_limit_too(embedded_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    fill(embedded_cluster.namesrv, topic, queues=1)
    queues = [MessageQueue(topic, "broker-a", 0), MessageQueue(topic, "broker-b", 0)]
    with LitePullConsumer(
        embedded_cluster.namesrv, group, begin="first", flow_control=FlowControl(total_messages=100)
    ) as consumer:
        consumer.assign(queues)
        consumer.start()

        def parts() -> list[int]:
            return [buffer.limits.messages for buffer in consumer._inner._source.holdings]

        wait_until(lambda: parts() == [50, 50], lambda: f"two parts: {parts()}")
        consumer.assign(queues[:1])
        wait_until(lambda: parts() == [100], lambda: f"one part: {parts()}")


class Counting:
    """A handler that notes how many calls run at a time."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.lock = threading.Lock()
        self.running = self.completed = 0
        # the number of completed calls, and of running ones, when each call began
        self.seen: list[tuple[int, int]] = []
        self._work = work

    def __call__(self, messages: list[MessageView]) -> None:
        with self.lock:
            self.running += 1
            self.seen.append((self.completed, self.running))
        self._work()
        with self.lock:
            # still counted as running by the consumer
            self.completed += 1
            self.running -= 1


@pytest.mark.parametrize("queues", [1, 4])
def test_gained_queues_begin_with_one_call_however_quick(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, queues: int
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=queues)
    with Producer(embedded_cluster.namesrv) as producer:
        for number in range(queues):
            producer.send_batch([Message(topic, b"x")] * 100, queue=MessageQueue(topic, "broker-a", number))
    handler = Counting(lambda: time.sleep(0.001))
    with PushConsumer(embedded_cluster.namesrv, group, begin="first", concurrency=8, ramp_up=600) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: handler.completed == queues * 100, lambda: f"all messages: {handler.completed}")
    assert max(running for _, running in handler.seen) == 1


@pytest.mark.parametrize("batch", [1, 16])
def test_a_handler_that_is_slow_gets_all_calls_in_time(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, batch: int
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    with Producer(embedded_cluster.namesrv) as producer:
        producer.send_batch([Message(topic, b"x")] * 400, queue=MessageQueue(topic, "broker-a", 0))
    free = threading.Event()
    handler = Counting(lambda: free.wait(30))
    with PushConsumer(
        embedded_cluster.namesrv, group, begin="first", concurrency=8, batch=batch, ramp_up=0.4
    ) as consumer:
        consumer.subscribe(topic)
        begun = time.monotonic()
        consumer.start(handler)
        wait_until(lambda: handler.running == 8, lambda: f"all calls: {handler.running}")
        # eight calls are allowed after 7 of 7 steps, the last of which comes 0.4 s after the queue was gained
        assert time.monotonic() - begun >= 0.35
        free.set()


def test_without_ramp_up_a_queue_has_all_calls_at_once(
    embedded_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    with Producer(embedded_cluster.namesrv) as producer:
        producer.send_batch([Message(topic, b"x")] * 40, queue=MessageQueue(topic, "broker-a", 0))
    free = threading.Event()
    handler = Counting(lambda: free.wait(30))
    with PushConsumer(embedded_cluster.namesrv, group, begin="first", concurrency=8, ramp_up=0) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: handler.running == 8, lambda: f"all calls: {handler.running}")
        assert handler.completed == 0
        free.set()
