"""How fast Spark reads and writes topics, next to Spark's Kafka connector, all in one run.

``python -m bench.spark [messages, default 2,000,000] [embedded real batched kafka, default all]``. Values of 100 bytes
in 8 queues of one broker, ``local[2]``, warm; the best of several rounds, by the clock: servers and Spark share the
machine. ``batched`` is a real broker with topics that store batches as one record. The plain reader has two processes
as well.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from rich.console import Console
from rich.table import Table

import evenq
from bench.kafka import connector_jars, kafka_broker
from bench.target import quiet
from evenq.client.read.ranges import QueueRange
from evenq.protocol import columns
from evenq.spark.batches import record_batches
from evenq.spark.lookup import Lookup
from evenq.spark.options import ReadOptions, read_options
from evenq.spark.planning import plan
from tests.clusters import create_topic
from tests.realmq import RealCluster

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOPIC = "bench"
QUEUES = 8
CORES = 2
ROUNDS = 5


@dataclass(frozen=True)
class System:
    """One broker, and how Spark is told to use it."""

    format: str
    reading: Mapping[str, str]
    writing: Callable[[str], Mapping[str, str]]
    more: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@contextmanager
def rocketmq(
    cluster: AbstractContextManager[RealCluster | evenq.testing.EmbeddedCluster], attributes: str | None = None
) -> Iterator[System]:
    with cluster as running:
        for topic in (TOPIC, f"{TOPIC}-again"):
            create_topic(running.namesrv, topic, queues=QUEUES, attributes=attributes)
        least = {"namesrv": running.namesrv}
        yield System(
            "rocketmq",
            least | {"subscribe": TOPIC},
            lambda topic: least | {"topic": topic},
            {"batch with properties": {"includeProperties": "true"}},
        )


@contextmanager
def kafka() -> Iterator[System]:
    with kafka_broker([TOPIC, f"{TOPIC}-again"], QUEUES) as address:
        least = {"kafka.bootstrap.servers": address}
        yield System("kafka", least | {"subscribe": TOPIC}, lambda topic: least | {"topic": topic})


SYSTEMS: dict[str, Callable[[], AbstractContextManager[System]]] = {
    "embedded": lambda: rocketmq(evenq.testing.cluster(brokers=1)),
    "real": lambda: rocketmq(RealCluster(brokers=1, quick=False)),
    "batched": lambda: rocketmq(RealCluster(brokers=1, quick=False), "+queue.type=BatchCQ"),
    "kafka": kafka,
}


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


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The best of some rounds, after one to warm up where there are several. What brokers still do of what was written
    before is waited for."""
    quiet()
    best = float("inf")
    for _ in range(rounds + (rounds > 1)):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def session(jars: list[Path]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.driver.memory", "2g")
    settings = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "log.level": "ERROR"}
    if jars:
        settings["jars"] = ",".join(map(str, jars))
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.dataSource.register(MadeRows)
    return spark


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def count(options: ReadOptions, task: tuple[QueueRange, ...]) -> int:
    return sum(map(len, record_batches(options, task)))


def plain(options: ReadOptions, pool: ProcessPoolExecutor, messages: int) -> None:
    """The reader without Spark."""
    with Lookup(options) as lookup:
        ends = lookup.ends(lookup.queues())
    tasks = plan([QueueRange(queue, ends.earliest[queue], ends.latest[queue]) for queue in ends.latest])
    assert sum(pool.map(count, [options] * len(tasks), tasks)) == messages


def measure(spark: SparkSession, system: System, messages: int) -> dict[str, float]:
    """Rows a second, by what was done."""
    frame = spark.range(messages).selectExpr("lpad(cast(id as string), 100, ' ') value")

    def write(topic: str) -> None:
        frame.write.format(system.format).options(**system.writing(topic)).mode("append").save()

    def batch(**more: str) -> DataFrame:
        return spark.read.format(system.format).options(**system.reading, **more).load()

    def aggregate() -> None:
        (found,) = batch().selectExpr("sum(length(value))").collect()
        assert found[0] == 100 * messages

    def stream() -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            given = dict(system.reading) | {"startingOffsets": "earliest"}
            reading = spark.readStream.format(system.format).options(**given).load()
            writing = reading.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writing.trigger(availableNow=True).start()
            query.awaitTermination()
            took.append(sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress) / 1000)

    took: list[float] = []
    write(TOPIC)
    found = {
        "write": messages / seconds(lambda: write(f"{TOPIC}-again")),
        "batch into noop": messages / seconds(lambda: noop(batch())),
        "aggregate": messages / seconds(aggregate),
        "stream into noop": messages / seconds(stream),
    }
    # without what Spark takes to start a query, which for a source in Python is a process
    found["its micro-batch alone"] = messages / min(took)
    for name, more in system.more.items():
        found[name] = messages / seconds(lambda more=more: noop(batch(**more)))  # type: ignore[misc]
    if system.format == "rocketmq":
        options = read_options(system.reading)
        with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
            found["plain reader, no Spark"] = messages / seconds(lambda: plain(options, pool, messages))
    return found


def workers_peak() -> int:
    """The most memory that a Python worker of Spark has had so far, in bytes."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                lines = (process / "status").read_text().splitlines()
                found = max(found, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
        except OSError:
            continue
    return found


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    names = sys.argv[2:] or list(SYSTEMS)
    spark = session(connector_jars() if "kafka" in names else [])
    rates: dict[str, dict[str, float]] = {}
    for name in names:
        with SYSTEMS[name]() as system:
            rates[name] = measure(spark, system, messages)
    made = messages / seconds(lambda: noop(spark.read.format("made").option("rows", messages).load()))
    peak = workers_peak()
    spark.stop()
    table = Table(title=f"{messages:,} messages of 100 bytes, {QUEUES} queues, local[{CORES}]: rows a second")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    against = rates.get("kafka", {})
    for what in dict.fromkeys(what for found in rates.values() for what in found):
        cells = []
        for name in names:
            rate = rates[name].get(what)
            ratio = f" ({rate / against[what]:.2f} ×)" if rate and what in against and name != "kafka" else ""
            cells.append(f"{rate:,.0f}{ratio}" if rate else "")
        table.add_row(what, *cells)
    console = Console()
    console.print(table)
    console.print(
        f"rows made of nothing: {made:,.0f} a second; most memory of a Python worker: {peak / 2**20:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
