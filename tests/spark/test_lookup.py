import asyncio
import json
import logging
import time
from collections import Counter

import pytest

import evenq
from evenq.client.net.session import Session
from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError, RemoteError, TopicNotFound
from evenq.model import Message, MessageQueue
from evenq.spark.batches import record_batches
from evenq.spark.bounds import AtTime, Bound, Place
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send
from tests.waiting import wait_until


def lookup(namesrv: str, topic: str) -> Lookup:
    return Lookup(read_options({"namesrv": namesrv, "subscribe": topic}))


def stored(namesrv: str, group: str, queue: MessageQueue) -> int | None:
    async def ask() -> int | None:
        session = Session(namesrv)
        route = await session.routes.get(queue.topic)
        offset = await session.remote.stored_offset(route.address(queue.broker), group, queue)
        await session.close()
        return offset

    return asyncio.run(ask())


def test_queues_and_their_ends(any_cluster: AnyCluster, send: Send, topic: str) -> None:
    ends = Counter(receipt.queue for receipt in send(Message(topic, b"%d" % n) for n in range(10)))
    with lookup(any_cluster.namesrv, topic) as asking:
        queues = asking.queues()
        assert sorted(queues) == [
            MessageQueue(topic, broker, number) for broker in sorted(any_cluster.brokers) for number in range(2)
        ]
        assert asking.earliest(queues) == dict.fromkeys(queues, 0)
        assert asking.latest(queues) == {queue: ends[queue] for queue in queues}


def test_progress_is_stored_for_the_group(any_cluster: AnyCluster, send: Send, topic: str, group: str) -> None:
    queue = send([Message(topic, b"1")])[0].queue
    options = read_options({"namesrv": any_cluster.namesrv, "subscribe": topic, "group": group})
    assert sum(map(len, record_batches(options, [QueueRange(queue, 0, 1)]))) == 1
    with Lookup(options) as asking:
        asking.commit(group, {queue: 1})
    assert stored(any_cluster.namesrv, group, queue) == 1


def test_a_topic_that_is_not_there_is_named(any_cluster: AnyCluster, topic: str) -> None:
    with lookup(any_cluster.namesrv, topic) as asking, pytest.raises(TopicNotFound, match=topic):
        asking.queues()


@pytest.mark.live
def test_a_connection_that_was_closed_meanwhile_is_made_anew(topic: str) -> None:
    with evenq.testing.cluster() as cluster:
        create_topic(cluster.namesrv, topic)
        (name,) = cluster.brokers
        with lookup(cluster.namesrv, topic) as asking:
            queues = asking.queues()
            before = asking.latest(queues)
            cluster.stop_broker(name)
            cluster.start_broker(name)
            assert asking.latest(queues) == before

            cluster.stop_broker(name)
            with pytest.raises(RemoteError):
                asking.latest(queues)
            # the checkpoint has the truth: a query does not fail for want of what only others look at
            assert asking.commit("g", before) == set()


@pytest.mark.live
def test_a_broker_that_is_down_leaves_the_others_to_be_read(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    with evenq.testing.cluster(brokers=2) as cluster:
        create_topic(cluster.namesrv, topic, queues=1)
        a, b = sorted(cluster.brokers)
        options = read_options({"namesrv": cluster.namesrv, "subscribe": topic})
        with Lookup(options, clock=lambda: now) as asking:
            queues = asking.queues()
            cluster.stop_broker(b)
            with caplog.at_level(logging.WARNING):
                assert set(asking.latest(queues, lenient=True)) == {MessageQueue(topic, a, 0)}
            assert f"broker {b} does not answer" in caplog.text
            assert len(asking.queues()) == 1
            cluster.start_broker(b)
            assert len(asking.queues()) == 1
            now = 6.0
            assert asking.queues() == queues, "it is looked for more often than every 30 s"
            wait_until(lambda: len(asking.latest(queues, lenient=True)) == 2, "an answer of the broker that came back")

            # without any broker the topic has no route: it keeps the queues that it had
            cluster.stop_broker(a)
            cluster.stop_broker(b)
            with pytest.raises(TopicNotFound):
                asking.queues(fresh=True)
            assert asking.queues(fresh=True, lenient=True) == queues


@pytest.mark.live
def test_patterns_and_assignments_choose_queues(topic: str) -> None:
    with evenq.testing.cluster() as cluster:
        (broker,) = cluster.brokers
        least = {"namesrv": cluster.namesrv}
        create_topic(cluster.namesrv, topic, queues=2)
        with Lookup(read_options(least | {"subscribePattern": "topic-.*|%RETRY%.*|TBW102"})) as asking:
            assert {queue.topic for queue in asking.queues()} == {topic}, "the broker's own topics are nobody's"
            create_topic(cluster.namesrv, f"{topic}-b", queues=1)
            assert {queue.topic for queue in asking.queues(fresh=True)} == {topic, f"{topic}-b"}
        with Lookup(read_options(least | {"subscribePattern": topic[:-1]})) as asking:
            assert asking.queues() == [], "the whole name must match"
        with Lookup(read_options(least | {"assign": json.dumps({topic: {broker: [1]}})})) as asking:
            assert asking.queues() == [MessageQueue(topic, broker, 1)]
        with Lookup(read_options(least | {"assign": json.dumps({topic: {broker: [1, 7]}})})) as asking:
            with pytest.raises(ArgumentError, match=rf"assign=.*'7'.*there are {topic}\.{broker}\.0, "):
                asking.queues()
            assert asking.queues(lenient=True) == [MessageQueue(topic, broker, 1)]


def test_bounds_by_time_and_by_group(any_cluster: AnyCluster, send: Send, topic: str, group: str) -> None:
    first = send(Message(topic, b"%d" % n) for n in range(8))
    options = read_options({"namesrv": any_cluster.namesrv, "subscribe": topic, "group": group})
    rows = [
        row
        for batch in record_batches(
            options, [QueueRange(receipt.queue, receipt.offset, receipt.offset + 1) for receipt in first]
        )
        for row in batch.to_pylist()
    ]
    latest = max(row["timestamp"] for row in rows)
    cut = round(latest.timestamp() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > cut, "a later millisecond")
    send(Message(topic, b"%d" % n) for n in range(8))
    with Lookup(options) as asking:
        ends = asking.ends(asking.queues())
        before = Counter(receipt.queue for receipt in first)
        assert asking.find(Bound("o", AtTime(cut)), ends) == {queue: before[queue] for queue in ends.latest}
        assert asking.find(Bound("o", AtTime(0)), ends) == ends.earliest
        assert asking.find(Bound("o", AtTime(cut + 10**9)), ends) == ends.latest

        queue = first[0].queue
        assert asking.commit(group, {queue: 1}) == {queue}
        assert asking.find(Bound("o", Place.GROUP), ends) == {**ends.earliest, queue: 1}


@pytest.mark.live
def test_name_servers_are_asked_now_and_then(topic: str) -> None:
    now = 0.0
    with evenq.testing.cluster() as cluster:
        create_topic(cluster.namesrv, topic, queues=2)
        options = read_options({"namesrv": cluster.namesrv, "subscribe": topic})
        with Lookup(options, clock=lambda: now) as asking:
            assert len(asking.queues()) == 2
            create_topic(cluster.namesrv, topic, queues=3)
            assert len(asking.queues()) == 2
            assert len(asking.queues(fresh=True)) == 3
            create_topic(cluster.namesrv, topic, queues=4)
            now = 31.0
            assert len(asking.queues()) == 4
