"""Writing with a session: batches, streams, and from query to query exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, cluster: AnyCluster, topic: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(namesrv=cluster.namesrv, subscribe=topic, **options).load()


def test_a_frame_is_written(spark: SparkSession, any_cluster: AnyCluster, topic: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    frame = spark.range(3000).selectExpr(
        "cast(id as string) value", "array(concat('k', id), 'all') keys", "if(id % 2 = 0, 'even', null) tags",
        "map('n', cast(id as string)) properties",
    )  # fmt: skip
    frame.write.format("rocketmq").options(namesrv=any_cluster.namesrv, topic=topic).mode("append").save()
    back = read(spark, any_cluster, topic, includeProperties="true").selectExpr(
        "cast(value as string) value", "split(keys, ' ') keys", "tags", "map('n', properties['n']) properties"
    )
    wanted = frame.collect()
    wait_until(lambda: back.count() >= len(wanted), "all rows in their queues")
    assert sorted(back.collect(), key=lambda row: int(row.value)) == wanted


def test_a_topic_that_stores_batches_as_one_record(spark: SparkSession, real_cluster: AnyCluster, topic: str) -> None:
    create_topic(real_cluster.namesrv, topic, queues=2, attributes="+queue.type=BatchCQ")
    frame = spark.range(20_000).selectExpr("concat('n', id) value", "array(cast(id as string)) keys")
    writing = frame.write.format("rocketmq").options(namesrv=real_cluster.namesrv, topic=topic, batchBytes="20000")
    writing.mode("append").save()
    # tasks begin and end within batches
    back = read(spark, real_cluster, topic, minPartitions="23").selectExpr("cast(value as string) value", "keys")
    wait_until(lambda: back.count() >= 20_000, "all rows in their queues")
    assert Counter(back.collect()) == Counter((f"n{n}", str(n)) for n in range(20_000))


def test_what_cannot_be_written_is_named(spark: SparkSession) -> None:
    writing = spark.range(1).write.format("rocketmq").options(namesrv="127.0.0.1:1", topic="t")
    with pytest.raises(Exception, match="column='id': there is no such column to write"):
        writing.mode("append").save()
    with pytest.raises(Exception, match="messages cannot be taken back"):
        writing.mode("overwrite").save()


def test_from_query_to_query_each_row_comes_once(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    """A query copies a topic, and its batches are run again, as after a crash; the next query reads what it wrote."""
    namesrv, copy = any_cluster.namesrv, f"{topic}-copy"
    for name in (topic, copy):
        create_topic(namesrv, name, queues=2)
    rows = spark.range(900).selectExpr("cast(id as string) value")
    rows.write.format("rocketmq").options(namesrv=namesrv, topic=topic).mode("append").save()
    wait_until(lambda: read(spark, any_cluster, topic).count() == 900, "all rows in their queues")

    def run() -> None:
        source = spark.readStream.format("rocketmq").options(
            namesrv=namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300"
        )
        sink = source.load().select("value").writeStream.format("rocketmq").options(namesrv=namesrv, topic=copy)
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    run()
    # as if the driver had died before it wrote down that the last batch was done
    for path in (tmp_path / "commits").glob("*2*"):
        path.unlink()
    run()
    wait_until(lambda: read(spark, any_cluster, copy).count() == 1200, "the last batch twice")
    once = read(spark, any_cluster, copy, deduplicate="true", minPartitions="7")
    found = Counter(int(row.value) for row in once.selectExpr("cast(value as string) value").collect())
    assert found == Counter(range(900))
