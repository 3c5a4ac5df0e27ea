"""How fast Spark reads a topic, next to the plain reader and to a source that only makes rows.

``python -m bench.spark [embedded | real] [messages, default 2,000,000]``. Bodies of 100 bytes in 8 queues of a broker,
``local[2]``, warm; the plain reader has two processes as well. The best of several rounds, by the clock: servers and
Spark share the machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from rich.console import Console
from rich.table import Table

import evenq
from bench.filling import fill
from evenq.client.reading import QueueRange
from evenq.protocol import columns
from evenq.spark.batches import record_batches
from evenq.spark.lookup import Lookup
from evenq.spark.options import ReadOptions, read_options
from evenq.spark.planning import plan
from tests.clusters import AnyCluster, create_topic
from tests.realmq import RealCluster

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOPIC = "bench"
QUEUES = 8
CORES = 2
ROUNDS = 3

# rows a second into noop that must be reached, by the kind of cluster
GOALS = {"embedded": 510_000, "real": 374_000}


class MadeRows(DataSource):
    """Rows out of nothing: what Spark itself takes for each."""

    @classmethod
    def name(cls) -> str:
        return "made"

    def schema(self) -> StructType:
        return from_arrow_schema(columns.schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        return MadeReader(int(self.options["rows"]))


class MadeReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows // QUEUES) for _ in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _made(10_000)
        for _ in range(0, partition.value, len(batch)):
            yield batch


def _made(rows: int) -> pa.RecordBatch:
    made = {"queue_id": 0, "offset": 0, "reconsume_times": 0, "timestamp": 0, "born_timestamp": 0, "value": b"x" * 100}
    schema = columns.schema()
    return pa.RecordBatch.from_pydict({name: [made.get(name, "x" * 16)] * rows for name in schema.names}, schema=schema)


def rate(rows: int, work: Callable[[], object]) -> float:
    """Rows a second, in the best of some rounds after one to warm up."""
    best = float("inf")
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return rows / best


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.driver.memory", "2g")
    for name, value in {"ui.enabled": "false", "ui.showConsoleProgress": "false", "log.level": "ERROR"}.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.dataSource.register(MadeRows)
    return spark


def tasks(options: ReadOptions) -> list[tuple[QueueRange, ...]]:
    with Lookup(options) as lookup:
        ends = lookup.ends(lookup.queues())
        return plan([QueueRange(queue, ends.earliest[queue], ends.latest[queue]) for queue in ends.latest])


def count(options: ReadOptions, task: tuple[QueueRange, ...]) -> int:
    return sum(map(len, record_batches(options, task)))


def measure(spark: SparkSession, namesrv: str, messages: int) -> dict[str, float]:
    given = {"namesrv": namesrv, "subscribe": TOPIC}
    options = read_options(given)

    def batch(**more: str) -> None:
        frame = spark.read.format("rocketmq").options(**given, **more).load()
        frame.write.format("noop").mode("overwrite").save()

    def aggregate() -> None:
        (found,) = spark.read.format("rocketmq").options(**given).load().selectExpr("sum(length(value))").collect()
        assert found[0] == 100 * messages

    def stream() -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            reading = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest").load()
            writing = reading.writeStream.format("noop").option("checkpointLocation", checkpoint)
            writing.trigger(availableNow=True).start().awaitTermination()

    def made() -> None:
        spark.read.format("made").option("rows", messages).load().write.format("noop").mode("overwrite").save()

    with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:

        def plain() -> None:
            parts = tasks(options)
            assert sum(pool.map(count, [options] * len(parts), parts)) == messages

        return {
            "plain reader, columns": rate(messages, plain),
            "Spark, batch into noop": rate(messages, batch),
            "Spark, batch with properties": rate(messages, lambda: batch(includeProperties="true")),
            "Spark, aggregate": rate(messages, aggregate),
            "Spark, stream into noop": rate(messages, stream),
            "Spark, rows made of nothing": rate(messages, made),
        }


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "embedded"
    messages = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
    clusters: dict[str, Callable[[], AbstractContextManager[AnyCluster]]] = {
        "embedded": lambda: evenq.testing.cluster(brokers=1),
        "real": lambda: RealCluster(brokers=1, quick=False),
    }
    with clusters[kind]() as cluster:
        create_topic(cluster.namesrv, TOPIC, queues=QUEUES)
        fill(cluster.namesrv, TOPIC, messages)
        spark = session()
        rates = measure(spark, cluster.namesrv, messages)
        spark.stop()
    table = Table(title=f"Reading {messages:,} messages of 100 bytes, {QUEUES} queues, {kind} broker, local[{CORES}]")
    table.add_column("reader")
    for heading in ("rows/s", "of plain", "goal"):
        table.add_column(heading, justify="right")
    for name, found in rates.items():
        goal = f"{GOALS[kind]:,}" if "noop" in name else ""
        table.add_row(name, f"{found:,.0f}", f"{found / rates['plain reader, columns']:.2f} ×", goal)
    Console().print(table)


if __name__ == "__main__":
    main()
