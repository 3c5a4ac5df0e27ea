"""The stream reader without a session: what Spark would call, in the order in which it calls it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import evenq
from evenq.client.read.ranges import QueueRange
from evenq.errors import OffsetsLost
from evenq.model import Message, MessageQueue
from evenq.spark.lookup import Lookup
from evenq.spark.offsets import Progress
from evenq.spark.options import read_options
from evenq.spark.reader import StreamReader
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send
from tests.waiting import wait_until

ALL = ReadAllAvailable()


@pytest.fixture
def least(any_cluster: AnyCluster, topic: str) -> dict[str, str]:
    return {"namesrv": any_cluster.namesrv, "subscribe": topic}


@pytest.fixture
def reader(least: dict[str, str], send: Send) -> Iterator[StreamReader]:
    made = StreamReader(read_options(least))
    yield made
    made.stop()


def messages(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % n) for n in range(count)]


def size(offset: dict[str, Any]) -> int:
    return sum(map(len, Progress.from_json(offset).ranges))


def test_the_beginning_stays_where_it_was_first_seen(reader: StreamReader, send: Send, topic: str) -> None:
    send(messages(topic, 10))
    begin = reader.initialOffset()
    send(messages(topic, 5))
    assert reader.initialOffset() == begin
    ahead = reader.latestOffset(begin, ALL)
    assert size(ahead) == 5
    assert sum(len(part) for task in reader.partitions(begin, ahead) for part in task.value) == 5


def test_nothing_new_is_the_same_value(reader: StreamReader, send: Send, topic: str) -> None:
    send(messages(topic, 10))
    begin = json.loads(json.dumps(reader.initialOffset()))
    assert reader.latestOffset(begin, ALL) == begin
    assert reader.partitions(begin, begin) == []


def test_a_limit_is_kept(reader: StreamReader, send: Send, topic: str) -> None:
    begin = reader.initialOffset()
    send(messages(topic, 10))
    first = reader.latestOffset(begin, ReadMaxRows(7))
    second = reader.latestOffset(first, ReadMaxRows(7))
    assert (size(first), size(second)) == (7, 3)


def test_the_limit_of_the_options_is_the_default(least: dict[str, str]) -> None:
    assert StreamReader(read_options(least)).getDefaultReadLimit() == ALL
    limited = StreamReader(read_options(least | {"maxOffsetsPerTrigger": "9"}))
    assert limited.getDefaultReadLimit() == ReadMaxRows(9)


def test_a_minimum_is_waited_for(least: dict[str, str], send: Send, topic: str) -> None:
    now = 0.0
    options = read_options(least | {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"})
    reader = StreamReader(options, clock=lambda: now)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    begin = reader.initialOffset()
    send(messages(topic, 3))
    first = reader.latestOffset(begin, limit)
    assert size(first) == 3, "the first batch does not wait"
    send(messages(topic, 3))
    assert reader.latestOffset(first, limit) == first
    assert size(reader.latestOffset(first, ALL)) == 3, "Spark's word counts"
    reader.latestOffset(begin, limit)
    now = 60.0
    assert size(reader.latestOffset(first, limit)) == 3
    reader.prepareForTriggerAvailableNow()
    assert size(reader.latestOffset(first, limit)) == 3
    reader.stop()


def test_the_group_knows_of_a_batch_as_soon_as_it_is_done(
    least: dict[str, str], send: Send, topic: str, group: str
) -> None:
    reader = StreamReader(read_options(least | {"group": group}))
    begin = reader.initialOffset()
    send(messages(topic, 40))
    first = reader.latestOffset(begin, ALL)
    read = [row for task in reader.partitions(begin, first) for batch in reader.read(task) for row in batch.to_pylist()]
    assert len(read) == 40
    assert reader.latestOffset(first, ALL) == first
    with Lookup(reader.options) as lookup:
        assert lookup.stored(group, lookup.queues()) == Progress.from_json(first).reached
    reader.stop()


@pytest.mark.live
def test_a_broker_that_goes_and_comes_ends_nothing(topic: str) -> None:
    now = 0.0
    with evenq.testing.cluster(brokers=2) as cluster, evenq.Producer(cluster.namesrv, group="p") as producer:
        create_topic(cluster.namesrv, topic, queues=1)
        a, b = (MessageQueue(topic, name, 0) for name in sorted(cluster.brokers))
        reader = StreamReader(read_options({"namesrv": cluster.namesrv, "subscribe": topic}), clock=lambda: now)
        begin = reader.initialOffset()
        for queue in (a, b, b):
            producer.send(Message(topic, b"1"), queue=queue)
        cluster.stop_broker(b.broker)
        first = reader.latestOffset(begin, ALL)
        assert Progress.from_json(first).moved == {a: 1}
        assert reader.latestOffset(first, ALL) == first
        cluster.start_broker(b.broker)
        now = 6.0
        second = wait_until(
            lambda: found if (found := reader.latestOffset(first, ALL)) != first else None, "the broker that came back"
        )
        assert Progress.from_json(second).ranges == (QueueRange(a, 1, 1), QueueRange(b, 0, 2))
        reader.stop()


def test_available_now_ends_at_what_was_there_when_it_began(reader: StreamReader, send: Send, topic: str) -> None:
    begin = reader.initialOffset()
    send(messages(topic, 10))
    reader.prepareForTriggerAvailableNow()
    send(messages(topic, 5))
    first = reader.latestOffset(begin, ReadMaxRows(8))
    second = reader.latestOffset(first, ReadMaxRows(8))
    assert (size(first), size(second)) == (8, 2)
    assert reader.latestOffset(second, ReadMaxRows(8)) == second


def test_lost_messages_fail_the_query_or_are_passed_over(
    least: dict[str, str], reader: StreamReader, send: Send, topic: str
) -> None:
    send(messages(topic, 8))
    now = Progress.from_json(reader.initialOffset()).reached
    beyond = Progress.at({queue: offset + 100 for queue, offset in now.items()}).to_json()
    with pytest.raises(OffsetsLost, match="failOnDataLoss=false"):
        reader.latestOffset(beyond, ALL)
    lenient = StreamReader(read_options(least | {"failOnDataLoss": "false"}))
    assert size(lenient.latestOffset(beyond, ALL)) == 8
    lenient.stop()


@pytest.mark.live
def test_queues_that_appear_are_read_from_their_beginning(topic: str) -> None:
    with evenq.testing.cluster() as cluster:
        create_topic(cluster.namesrv, topic, queues=1)
        reader = StreamReader(read_options({"namesrv": cluster.namesrv, "subscribe": topic}))
        begin = reader.initialOffset()
        create_topic(cluster.namesrv, topic, queues=3)
        with evenq.Producer(cluster.namesrv, group="p") as producer:
            for message in messages(topic, 9):
                producer.send(message)
        reader.prepareForTriggerAvailableNow()
        ahead = reader.latestOffset(begin, ALL)
        assert size(ahead) == 9
        assert len(ahead[topic][next(iter(cluster.brokers))]) == 3
        reader.stop()
