"""Consumers in a namespace: brokers see names with it, users see them without."""

from __future__ import annotations

import pytest

import evenq
from evenq import Admin, ArgumentError, LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import Plan, strategy
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

SPACE = "shop"


def send(namesrv: str, topic: str, *bodies: bytes, namespace: str = SPACE) -> None:
    with Producer(namesrv, namespace=namespace) as producer:
        for body in bodies:
            assert producer.send(Message(topic, body, tags="paid")).ok


def test_a_push_consumer_gets_its_namespaces_messages_under_their_own_names(
    any_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, f"{SPACE}%{topic}", queues=1)
    create_topic(any_cluster.namesrv, topic, queues=1)
    send(any_cluster.namesrv, topic, b"of nobody", namespace="")
    send(any_cluster.namesrv, topic, b"one", b"two")
    seen: list[tuple[bytes, str, int]] = []
    events: list[evenq.ConsumeEvent] = []
    plans: list[Plan] = []
    assignments: dict[str, list[MessageQueue]] = {}

    def handle(messages: list[MessageView]) -> evenq.Retry | None:
        [message] = messages
        seen.append((message.body, message.topic, message.reconsume_times))
        assert message.queue.topic in (topic, f"%RETRY%{group}")
        return evenq.Retry(1) if message.reconsume_times == 0 and message.body == b"one" else None

    with PushConsumer(any_cluster.namesrv, group, begin="first", namespace=SPACE) as consumer:
        consumer.on_rebalance(plans.append)
        consumer.on_assignment(lambda name, every, mine: assignments.update({name: mine}))
        consumer.on_consume(events.append)
        consumer.subscribe(topic, "paid")
        consumer.start(handle)
        wait_until(lambda: len(seen) == 3, lambda: f"two messages, one of them twice: {seen}")
        assert {queue.topic for queue in consumer.queues} == {topic}
        wait_until(lambda: {topic, f"%RETRY%{group}"} <= assignments.keys(), lambda: f"assignments: {assignments}")
        assert {queue.topic for queue in assignments[topic]} == {topic}
        with Admin(any_cluster.namesrv) as admin:
            assert [member.client_id for member in admin.members(f"{SPACE}%{group}").members] == [consumer.client_id]
    assert sorted(seen) == [(b"one", topic, 0), (b"one", topic, 1), (b"two", topic, 0)]
    wait_until(lambda: len(events) == 3, "three events")
    assert {event.group for event in events} == {group}
    assert {event.queue.topic for event in events} == {topic, f"%RETRY%{group}"}
    assert {queue.topic for plan in plans for queue in (*plan.gain, *plan.lose)} == {topic, f"%RETRY%{group}"}
    # what was consumed is committed under the wire's names
    with LitePullConsumer(any_cluster.namesrv, f"{SPACE}%{group}") as other:
        queues = other.queues_of(f"{SPACE}%{topic}")
        assert sum(other.committed(queue) or 0 for queue in queues) == 2


def test_a_lite_pull_consumer_speaks_its_users_names(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, f"{SPACE}%{topic}", queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    with Producer(any_cluster.namesrv, namespace=SPACE) as producer:
        for number in range(5):
            receipt = producer.send(Message(topic, b"%d" % number), queue=queue)
            assert receipt.queue == queue
    with LitePullConsumer(any_cluster.namesrv, group, namespace=SPACE, auto_commit=False) as consumer:
        assert queue in consumer.queues_of(topic)
        consumer.assign([queue])
        consumer.start()
        wait_until(lambda: consumer.queues == [queue], lambda: f"the queue: {consumer.queues}")
        consumer.seek_to_begin(queue)
        found: list[MessageView] = []

        def all_messages() -> bool:
            found.extend(consumer.poll(0.2))
            return len(found) == 5

        wait_until(all_messages, lambda: f"five messages: {found}")
        assert {message.topic for message in found} == {topic}
        consumer.seek(queue, 2)
        names: list[str] = []

        def all_rows() -> bool:
            batch = consumer.poll_arrow(0.2)
            assert batch.schema.field("topic").type == batch.column("topic").type
            names.extend(batch.column("topic").to_pylist())
            return len(names) == 3

        wait_until(all_rows, lambda: f"three rows: {names}")
        assert set(names) == {topic}
        with pytest.raises(ArgumentError, match=rf"offsets=\{{MessageQueue\(topic='{topic}',"):
            consumer.commit({queue: 99})
        consumer.commit({queue: 4})
        assert consumer.committed(queue) == 4
        assert consumer.position(queue) == 5
        consumer.seek_to_end(queue)
        with pytest.raises(ArgumentError, match=rf"topic={topic}"):
            consumer.seek(queue, 99)
        with pytest.raises(evenq.StateError, match=rf"topic={topic}, brokerName=none"):
            consumer.pause([MessageQueue(topic, "none", 0)])
    with Admin(any_cluster.namesrv) as admin:
        rows = admin.progress(f"{SPACE}%{group}").queues
    assert {row.queue.topic: row.offset for row in rows if row.offset} == {f"{SPACE}%{topic}": 4}


def test_queues_of_config_are_given_without_the_namespace(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, f"{SPACE}%{topic}", queues=2)
    mine = [MessageQueue(topic, "broker-b", 1)]
    with PushConsumer(
        any_cluster.namesrv, group, namespace=SPACE, strategy=strategy("CONFIG", queues=mine)
    ) as consumer:
        consumer.subscribe(topic)
        consumer.start(lambda messages: None)
        wait_until(lambda: consumer.queues == mine, lambda: f"the queue given: {consumer.queues}")


@pytest.mark.parametrize("name", ["a%b", "a b", "ö"])
def test_a_namespace_that_brokers_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="namespace="):
        PushConsumer("127.0.0.1:9", "g", namespace=name)


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
def test_an_unknown_subscription_is_named_without_the_namespace(kind: type[PushConsumer | LitePullConsumer]) -> None:
    with kind("127.0.0.1:9", "g", namespace=SPACE) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(ArgumentError, match=r"^topic='bills': not subscribed to; give one of orders$"):
            consumer.unsubscribe("bills")
