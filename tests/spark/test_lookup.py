import asyncio
import logging
from collections import Counter

import pytest

import evenq
from evenq.client.reading import QueueRange
from evenq.client.session import Session
from evenq.errors import RemoteError, TopicNotFound
from evenq.model import Message, MessageQueue
from evenq.spark.batches import record_batches
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send


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


def test_a_connection_that_was_closed_meanwhile_is_made_anew(topic: str, caplog: pytest.LogCaptureFixture) -> None:
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
            with caplog.at_level(logging.WARNING):
                asking.commit("g", before)
    assert "progress of group g could not be stored" in caplog.text


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
