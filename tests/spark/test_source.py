"""``format("rocketmq")`` in a Spark session, which finds it by itself, against both kinds of cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenq.model import Message, SendResult
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def numbered(topic: str, numbers: range) -> list[Message]:
    return [
        Message(topic, b"%d" % n, tags="odd" if n % 2 else "even", keys=[f"k{n}", "all"], properties={"n": f"ü{n}"})
        for n in numbers
    ]


Place = tuple[str, str, int, int]


class Reading:
    """What the tests do with one topic."""

    def __init__(self, spark: SparkSession, namesrv: str, topic: str) -> None:
        self.spark = spark
        self.options = {"namesrv": namesrv, "subscribe": topic}

    def batch(self, **options: str) -> DataFrame:
        return self.spark.read.format("rocketmq").options(**self.options, **options).load()

    def stream(self, checkpoint: Path, **options: str) -> DataStreamWriter:
        """A stream that ends when it has read what is there now."""
        given = self.options | {"startingOffsets": "earliest"} | options
        frame = self.spark.readStream.format("rocketmq").options(**given).load()
        return frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)

    def to_parquet(self, folder: Path, checkpoint: Path, **options: str) -> StreamingQuery:
        query = self.stream(checkpoint, **options).format("parquet").start(str(folder))
        assert query.awaitTermination(120)
        return query

    def batches(self, checkpoint: Path, **options: str) -> dict[int, set[Place]]:
        """The messages that a stream read, by the number of the micro-batch."""
        got: dict[int, set[Place]] = {}

        def take(frame: DataFrame, number: int) -> None:
            rows = frame.collect()
            got[number] = {place(row) for row in rows}
            assert len(got[number]) == len(rows)

        assert self.stream(checkpoint, **options).foreachBatch(take).start().awaitTermination(120)
        return got

    def values(self, folder: Path) -> Counter[bytes]:
        return Counter(bytes(row.value) for row in self.spark.read.parquet(str(folder)).select("value").collect())


@pytest.fixture
def reading(spark: SparkSession, any_cluster: AnyCluster, topic: str) -> Reading:
    return Reading(spark, any_cluster.namesrv, topic)


def place(row: Any) -> Place:
    return (row.topic, row.broker, row.queue_id, row.offset)


def places(receipts: list[SendResult]) -> list[Place]:
    return [(receipt.queue.topic, receipt.queue.broker, receipt.queue.queue_id, receipt.offset) for receipt in receipts]


def test_a_batch_holds_what_was_sent(reading: Reading, send: Send, topic: str) -> None:
    messages = numbered(topic, range(2500))
    receipts = send(messages)

    rows = {place(row): row for row in reading.batch(includeProperties="true", minPartitions="5").collect()}

    assert len(rows) == len(messages)
    for message, receipt, at in zip(messages, receipts, places(receipts), strict=True):
        row = rows[at]
        assert (bytes(row.value), row.tags, row.keys) == (message.body, message.tags, " ".join(message.keys))
        assert (row.msg_id, row.unique_key, row.reconsume_times) == (receipt.offset_msg_id, receipt.msg_id, 0)
        assert row.properties["n"] == message.properties["n"]
        assert row.born_timestamp <= row.timestamp


def test_properties_can_be_columns(reading: Reading, send: Send, topic: str) -> None:
    send(numbered(topic, range(20)))
    rows = reading.batch(propertyColumns="n,colour").collect()
    assert {(bytes(row.value).decode(), row.n, row.colour) for row in rows} == {
        (f"{n}", f"ü{n}", None) for n in range(20)
    }


def test_offsets_and_tags_choose_what_is_read(reading: Reading, send: Send, topic: str) -> None:
    receipts = send(numbered(topic, range(200)))
    ends = Counter(receipt.queue for receipt in receipts)
    starts: dict[str, dict[str, dict[str, int]]] = {topic: {}}
    for queue, end in ends.items():
        starts[topic].setdefault(queue.broker, {})[str(queue.queue_id)] = end - 10

    last_ten = reading.batch(startingOffsets=json.dumps(starts), minPartitions="3")
    assert {place(row) for row in last_ten.collect()} == {
        at for at, receipt in zip(places(receipts), receipts, strict=True) if receipt.offset >= ends[receipt.queue] - 10
    }
    first = reading.batch(endingOffsets=json.dumps(starts))
    assert first.count() == len(receipts) - 10 * len(ends)
    assert reading.batch(tags="odd").count() == 100
    assert len(reading.batch().limit(3).collect()) == 3


def test_filters_are_asked_of_the_broker_where_spark_lets_them_be(
    reading: Reading, send: Send, topic: str, pushing: None
) -> None:
    receipts = send(numbered(topic, range(400)))
    at = receipts[0].queue
    middle = max(row.timestamp for row in reading.batch().where("cast(cast(value as string) as int) < 200").collect())
    send(numbered(topic, range(400, 500)))

    def sizes(condition: str) -> tuple[int, int]:
        """How many rows there are, and how many offsets were to be read for them."""
        found = reading.batch(maxRecordsPerPartition="1").where(condition)
        return found.count(), found.rdd.getNumPartitions()

    one_queue = f"broker = '{at.broker}' and queue_id = {at.queue_id} and offset between 10 and 19"
    assert sizes(one_queue) == (10, 10)
    assert sizes(f"{one_queue} and topic = 'another'") == (0, 1)
    assert reading.batch(tags="odd").where("tags in ('odd', 'even')").count() == 250
    assert reading.batch(tags="odd").where("tags = 'even'").count() == 0
    assert sizes(f"timestamp > timestamp'{middle + timedelta(minutes=1)}'") == (0, 1)
    assert reading.batch().where(f"timestamp <= timestamp'{middle}'").count() >= 200


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_topic_without_messages_is_an_empty_table(reading: Reading, send: Send, tmp_path: Path) -> None:
    assert reading.batch().count() == 0
    query = reading.to_parquet(tmp_path / "out", tmp_path / "checkpoint")
    assert sum(progress.numInputRows for progress in query.recentProgress) == 0


def test_a_stream_goes_on_where_it_was(reading: Reading, send: Send, topic: str, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    messages = numbered(topic, range(1000))
    send(messages)
    query = reading.to_parquet(out, checkpoint, maxOffsetsPerTrigger="400", group="spark-progress")
    assert [rows for progress in query.recentProgress if (rows := progress.numInputRows)] == [400, 400, 200]
    latest = json.loads(query.recentProgress[-1].sources[0].latestOffset)
    assert sum(end for brokers in latest.values() for ends in brokers.values() for end in ends.values()) == 1000

    more = numbered(topic, range(1000, 1300))
    send(more)
    query = reading.to_parquet(out, checkpoint)
    assert [rows for progress in query.recentProgress if (rows := progress.numInputRows)] == [300]
    assert reading.values(out) == Counter(message.body for message in messages + more)


def test_a_batch_that_was_not_finished_is_read_again_exactly(
    reading: Reading, send: Send, topic: str, tmp_path: Path
) -> None:
    receipts = send(numbered(topic, range(600)))
    first = reading.batches(tmp_path / "checkpoint", maxOffsetsPerTrigger="200")
    assert [len(batch) for batch in first.values()] == [200, 200, 200]
    assert set.union(*first.values()) == set(places(receipts))

    # as if the driver had died in the third batch: its offsets were written, its end was not
    for path in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    more = send(numbered(topic, range(600, 700)))
    again = reading.batches(tmp_path / "checkpoint", maxOffsetsPerTrigger="1000")

    assert again == {2: first[2], 3: set(places(more))}


def test_a_wrong_option_is_named_where_the_user_sees_it(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    source = spark.read.format("rocketmq").option("namesrv", "127.0.0.1:1").option("subscribed", "orders")
    with pytest.raises(
        AnalysisException, match=r"subscribed='orders': there is no such option; did you mean subscribe"
    ):
        source.load()


def test_secrets_are_shown_nowhere(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    secrets = {"accessKey": "who-I-am", "secretKey": "how-I-prove-it", "securityToken": "for-a-while"}
    reading = Reading(spark, embedded_cluster.namesrv, topic)
    frame = reading.batch(**secrets)
    query = reading.to_parquet(tmp_path / "out", tmp_path / "checkpoint", **secrets)
    shown = frame._jdf.queryExecution().toString() + query._jsq.explainInternal(True)
    shown += "".join(progress.json for progress in query.recentProgress)
    shown += "".join(path.read_text() for path in (tmp_path / "checkpoint").rglob("[0-9]*") if path.is_file())
    assert "rocketmq" in shown
    for secret in secrets.values():
        assert secret not in shown


def test_a_schema_of_ones_own_is_refused(reading: Reading, send: Send) -> None:
    wrong = reading.spark.read.format("rocketmq").options(**reading.options).schema("value string")
    with pytest.raises(Exception, match="leave schema"):
        wrong.load().collect()
