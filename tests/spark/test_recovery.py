"""What a stream does after a crash, and while its topics and brokers change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

import evenq
from evenq.model import Message, MessageQueue
from evenq.protocol import RequestCode
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.realmq import RealCluster
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Runs a stream of small batches into a folder, and is killed with all that belongs to it in the midst of the second.
KILLED = """
import os, signal, sys
from pyspark.sql import SparkSession

namesrv, topic, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def write(frame, number):
    if number == 1:
        frame.limit(10).write.mode("append").parquet(folder + "/half-done")
        os.killpg(0, signal.SIGKILL)
    frame.write.mode("overwrite").parquet(f"{folder}/out/batch={number}")

stream = spark.readStream.format("rocketmq").options(
    namesrv=namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40"
)
query = stream.load().writeStream.foreachBatch(write).option("checkpointLocation", folder + "/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""


def fill(namesrv: str, topic: str, first: int, count: int) -> None:
    with evenq.Producer(namesrv, group="recovery") as producer:
        sent = [producer.send_async(Message(topic, b"%d" % n)) for n in range(first, first + count)]
        wait_shown(namesrv, [future.result() for future in sent])


def stream(spark: SparkSession, folder: Path, **options: str) -> DataStreamWriter:
    frame = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **options).load()
    return frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))


def values(frame: DataFrame) -> Counter[int]:
    return Counter(int(bytes(row.value)) for row in frame.select("value").collect())


class Wait(Protocol):
    def __call__(self, *numbers: int, seconds: float = 180) -> None: ...


@contextmanager
def running(query: DataStreamWriter) -> Iterator[Wait]:
    """Lets a stream run, and gives a function that waits until it has brought these numbers, each once."""
    seen: Counter[int] = Counter()
    started = query.foreachBatch(lambda frame, number: seen.update(values(frame))).start()

    def wait_for(*numbers: int, seconds: float = 180) -> None:
        wait_until(lambda: seen.copy() == Counter(numbers), lambda: f"{numbers}: {seen} {started.exception()}", seconds)

    try:
        yield wait_for
        assert started.isActive
    finally:
        started.stop()


def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    fill(namesrv, topic, 0, 100)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, namesrv, topic, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        timeout=180,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    half = values(spark.read.parquet(str(tmp_path / "half-done")))
    assert len(half) == 10
    fill(namesrv, topic, 100, 20)

    batches: dict[int, Counter[int]] = {}

    def write(frame: DataFrame, number: int) -> None:
        batches[number] = values(frame)
        frame.write.mode("overwrite").parquet(f"{tmp_path}/out/batch={number}")

    query = stream(spark, tmp_path, namesrv=namesrv, subscribe=topic, maxOffsetsPerTrigger="1000").foreachBatch(write)
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(batches) == [1, 2]
    assert len(batches[1]) == 40, "the batch that was under way, with the same messages"
    assert half.keys() <= batches[1].keys()
    assert values(spark.read.parquet(str(tmp_path / "out"))) == Counter(range(120))


# What is on disk when a driver dies at some point of the last micro-batch: these files are not there yet.
POINTS = {
    "done, not written down": ["commits"],
    "half done": ["commits", "sink"],
    "not begun": ["commits", "sink", "offsets"],
}


@pytest.mark.parametrize("point", POINTS)
def test_a_restart_at_any_point_of_a_micro_batch_reads_each_message_once(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path, point: str
) -> None:
    namesrv, out = any_cluster.namesrv, tmp_path / "out"
    create_topic(namesrv, topic, queues=2)
    fill(namesrv, topic, 0, 60)

    def run() -> None:
        query = stream(spark, tmp_path, namesrv=namesrv, subscribe=topic, maxOffsetsPerTrigger="30").format("parquet")
        assert query.trigger(availableNow=True).start(str(out)).awaitTermination(120)

    run()
    folders = {"sink": out / "_spark_metadata"}
    for name in POINTS[point]:
        folder = folders.get(name, tmp_path / "checkpoint" / name)
        for path in [*folder.glob("1"), *folder.glob(".1.*")]:
            path.unlink()
    fill(namesrv, topic, 60, 20)
    run()
    assert values(spark.read.parquet(str(out))) == Counter(range(80))


def test_topics_that_appear_queues_that_are_added_and_a_broker_that_goes_and_comes(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with evenq.testing.cluster(brokers=2) as cluster, evenq.Producer(cluster.namesrv, group="p") as producer:
        namesrv = cluster.namesrv
        a, b = sorted(cluster.brokers)

        def send(name: str, broker: str, queue_id: int, number: int) -> None:
            producer.send(Message(name, b"%d" % number), queue=MessageQueue(name, broker, queue_id))

        create_topic(namesrv, topic, queues=1)
        send(topic, a, 0, 0)
        send(topic, b, 0, 1)
        query = stream(spark, tmp_path, namesrv=namesrv, subscribePattern=f"{topic}.*")
        with running(query) as wait_for:
            wait_for(0, 1)
            # a micro-batch that was planned with the message would wait for its broker
            cluster.brokers[b].faults.add(RequestCode.GET_MAX_OFFSET, close=True)
            send(topic, b, 0, 2)
            cluster.stop_broker(b)
            send(topic, a, 0, 3)
            wait_for(0, 1, 3, seconds=60)
            create_topic(namesrv, f"{topic}-b", queues=1)
            send(f"{topic}-b", a, 0, 4)
            cluster.start_broker(b)
            create_topic(namesrv, topic, queues=2)
            with evenq.Producer(namesrv, group="p") as another:
                another.send(Message(topic, b"5"), queue=MessageQueue(topic, b, 1))
            # name servers are asked every 30 s for what is new, and sooner while a broker is missed
            wait_for(0, 1, 2, 3, 4, 5)


@pytest.mark.interop
def test_a_java_broker_that_is_killed_and_comes_back(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with RealCluster(brokers=2) as cluster:
        a, b = sorted(cluster.brokers)

        def send(broker: str, number: int) -> None:
            # a new one each time: its routes are those of now
            with evenq.Producer(cluster.namesrv, group="p") as producer:
                producer.send(Message(topic, b"%d" % number), queue=MessageQueue(topic, broker, 0))

        create_topic(cluster.namesrv, topic, queues=1)
        send(a, 0)
        send(b, 1)
        with running(stream(spark, tmp_path, namesrv=cluster.namesrv, subscribe=topic)) as wait_for:
            wait_for(0, 1)
            cluster.kill_broker(b)
            send(a, 2)
            wait_for(0, 1, 2)
            cluster.start_broker(b)
            send(b, 3)
            wait_for(0, 1, 2, 3)
