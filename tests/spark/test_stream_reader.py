"""The stream reader without a session: what Spark would call, in the order in which it calls it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import evenq
from evenq.errors import OffsetsLost
from evenq.model import Message
from evenq.spark.offsets import Progress
from evenq.spark.options import read_options
from evenq.spark.source import StreamReader
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send

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
