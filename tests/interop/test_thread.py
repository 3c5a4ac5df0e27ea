"""The whole thread on both brokers: sent from Python, shared by Python and Java members of one group, read by Spark."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from evenq import Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import assign
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 10_000
QUEUES = 8


def test_python_and_java_members_share_a_topic(
    any_cluster: AnyCluster, java: JavaHost, spark: SparkSession, topic: str, group: str
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=QUEUES)
    lock = threading.Lock()
    consumed: dict[str, list[bytes]] = {}
    members: dict[str, PushConsumer] = {}

    with ExitStack() as stack:
        for name in ("py-1", "py-2"):
            bodies = consumed[name] = []

            def handler(messages: list[MessageView], bodies: list[bytes] = bodies) -> None:
                with lock:
                    bodies.extend(message.body for message in messages)

            member = stack.enter_context(PushConsumer(namesrv, group, instance=name, begin="first", batch=32))
            member.subscribe(topic)
            member.start(handler)
            members[name] = member
        other = java.push(namesrv, group, topic, instance="java-1", begin=Begin.FIRST, batch=32)
        stack.callback(other.stop)

        queues = [MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(QUEUES)]
        ids = [other.client_id, *(member.client_id for member in members.values())]
        shares = assign("AVG", queues, ids)

        def held() -> dict[str, list[MessageQueue]]:
            return {
                other.client_id: other.assignment(),
                **{member.client_id: member.queues for member in members.values()},
            }

        wait_until(lambda: held() == shares, lambda: f"shares {shares}: {held()}", 60)

        with Producer(namesrv) as producer:
            receipts = [producer.send_async(Message(topic, b"m-%d" % n, keys=[f"k-{n}"])) for n in range(COUNT)]
            assert all(receipt.result().ok for receipt in receipts)

        def all_consumed() -> list[bytes]:
            with lock:
                python = [body for bodies in consumed.values() for body in bodies]
            return python + [received.message.body for received in other.messages]

        wait_until(lambda: len(all_consumed()) >= COUNT, lambda: f"{COUNT} messages: {len(all_consumed())}", 60)
        counts = Counter(all_consumed())
        assert len(counts) == COUNT
        assert set(counts.values()) == {1}
        assert all(consumed.values())
        assert other.messages

    rows = spark.read.format("rocketmq").option("namesrv", namesrv).option("subscribe", topic).load()
    assert (rows.count(), rows.select("keys").distinct().count()) == (COUNT, COUNT)
