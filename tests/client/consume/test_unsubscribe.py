"""The end of a subscription: queues are let go, brokers and other members know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evenq import Admin, ArgumentError, LitePullConsumer, Message, MessageQueue, Producer, PushConsumer, StateError
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

Member = PushConsumer | LitePullConsumer
KINDS = pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])


def start(member: Member, *topics: str) -> None:
    for topic in topics:
        member.subscribe(topic)
    if isinstance(member, PushConsumer):
        member.start(lambda messages: None)
    else:
        member.start()


def send(namesrv: str, topic: str, count: int) -> None:
    with Producer(namesrv) as producer:
        for _ in range(count):
            assert producer.send(Message(topic, b"x")).ok


@KINDS
@pytest.mark.parametrize("strategy", ["AVG", "STICKY"])
def test_queues_of_an_ended_subscription_go_to_others(
    kind: Callable[..., Member], strategy: str, any_cluster: AnyCluster, topic: str, group: str
) -> None:
    namesrv, other = any_cluster.namesrv, f"{topic}-other"
    for name in (topic, other):
        create_topic(namesrv, name, queues=2)
    taken = [MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(2)]
    with (
        kind(namesrv, group, instance="c1", strategy=strategy, begin="first") as first,
        kind(namesrv, group, instance="c2", strategy=strategy, begin="first") as second,
    ):
        start(first, topic, other)
        wait_until(lambda: len(first.queues) == 8, lambda: f"all queues: {first.queues}")
        first.unsubscribe(topic)
        wait_until(lambda: {queue.topic for queue in first.queues} == {other}, lambda: f"one topic: {first.queues}")
        with Admin(namesrv) as admin:
            wait_until(lambda: topic not in admin.members(group).subscriptions, "the brokers told")
        first.unsubscribe(other)
        wait_until(lambda: not first.queues, lambda: f"no queue: {first.queues}")
        # under AVG a member counts for every topic of the group, so the first one leaves before
        if strategy == "AVG":
            first.close()
        start(second, topic)
        wait_until(lambda: second.queues == taken, lambda: f"its locks are free: {second.queues}")


@KINDS
def test_offsets_of_an_ended_subscription_are_stored(
    kind: Callable[..., Member], embedded_cluster: AnyCluster, topic: str, group: str
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=1)
    send(namesrv, topic, 10)
    queues = [MessageQueue(topic, broker, 0) for broker in ("broker-a", "broker-b")]
    found = 0
    with kind(namesrv, group, begin="first") as member, LitePullConsumer(namesrv, group) as looking:
        member.subscribe(topic)

        def handler(messages: object) -> None:
            nonlocal found
            found += 1

        if isinstance(member, PushConsumer):
            member.start(handler)
            wait_until(lambda: found == 10, "all messages")
        else:
            while found < 10:
                found += len(member.poll(1.0))
            assert member.poll(0) == []
        member.unsubscribe(topic)
        wait_until(lambda: not member.queues, "no queue")
        wait_until(lambda: [looking.committed(queue) for queue in queues] == [5, 5], "both offsets")
        send(namesrv, topic, 4)
        member.subscribe(topic)
        wait_until(lambda: member.queues == queues, "the queues again")
        if isinstance(member, PushConsumer):
            wait_until(lambda: found == 14, "the rest once")
        else:
            wait_until(lambda: len(member.poll(0.1)) > 0, "the rest")


@KINDS
def test_a_topic_that_is_gone_may_be_unsubscribed(
    kind: Callable[..., Member], embedded_cluster: AnyCluster, topic: str, group: str
) -> None:
    namesrv, other = embedded_cluster.namesrv, f"{topic}-other"
    for name in (topic, other):
        create_topic(namesrv, name, queues=1)
    with kind(namesrv, group) as member:
        start(member, topic, other)
        wait_until(lambda: len(member.queues) == 4, lambda: f"all queues: {member.queues}")
        with Admin(namesrv) as admin:
            admin.delete_topic(topic)
        member.unsubscribe(topic)
        wait_until(lambda: {queue.topic for queue in member.queues} == {other}, lambda: f"one topic: {member.queues}")


@KINDS
def test_what_is_not_subscribed_to_is_named(kind: Callable[..., Member]) -> None:
    with kind("127.0.0.1:1", "g") as member:
        member.subscribe("orders")
        with pytest.raises(ArgumentError, match="topic='bills': not subscribed to; give one of orders"):
            member.unsubscribe("bills")
        member.unsubscribe("orders")
        with pytest.raises(StateError, match="no topic is subscribed"):
            start(member)


def test_a_consumer_that_had_subscribed_assigns_nothing(embedded_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    with LitePullConsumer(embedded_cluster.namesrv, group) as consumer:
        start(consumer, topic)
        consumer.unsubscribe(topic)
        with pytest.raises(StateError, match="this consumer has subscribed"):
            consumer.assign([MessageQueue(topic, "broker-a", 0)])
