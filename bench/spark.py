"""How fast Spark reads and writes topics, next to Spark's Kafka connector, all in one run.

``python -m bench.spark [messages, default 2,000,000] [embedded real batched kafka, default all]``. Values of 100 bytes
in 8 queues of one broker, ``local[2]``, warm; the best of several rounds, by the clock: servers and Spark share the
machine, and the systems take turns, since a JVM gets faster with every round. ``batched`` are topics of the real broker
that store batches as one record. The plain reader has two processes as well.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
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
    topic: str
    least: Mapping[str, str]
    # other ways to read a batch
    more: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def reading(self) -> dict[str, str]:
        return {**self.least, "subscribe": self.topic}

    def writing(self, topic: str) -> dict[str, str]:
        return {**self.least, "topic": topic}


NAMES = ("embedded", "real", "batched", "kafka")


@contextmanager
def running(names: Collection[str]) -> Iterator[dict[str, System]]:
    """The systems of these names, all at once: they take turns."""
    with ExitStack() as stack:
        found: dict[str, System] = {}
        if "embedded" in names:
            found["embedded"] = rocketmq(stack.enter_context(evenq.testing.cluster(brokers=1)).namesrv)
        if "real" in names or "batched" in names:
            real = stack.enter_context(RealCluster(brokers=1, quick=False))
            found["real"] = rocketmq(real.namesrv)
            found["batched"] = rocketmq(real.namesrv, "batched", "+queue.type=BatchCQ")
        if "kafka" in names:
            found["kafka"] = kafka(stack.enter_context(kafka_broker([TOPIC, f"{TOPIC}-again"], QUEUES)))
        yield {name: found[name] for name in names}


def rocketmq(namesrv: str, topic: str = TOPIC, attributes: str | None = None) -> System:
    for name in (topic, f"{topic}-again"):
        create_topic(namesrv, name, queues=QUEUES, attributes=attributes)
    more = {"batch with properties": {"includeProperties": "true"}}
    return System("rocketmq", topic, {"namesrv": namesrv}, more)


def kafka(address: str) -> System:
    return System("kafka", TOPIC, {"kafka.bootstrap.servers": address})


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
    """The best of some rounds."""
    return in_turns({"": work}, rounds)[""]


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """The best of some rounds in which all take turns, after one to warm up. What brokers still do of what was written
    before is waited for."""
    best = dict.fromkeys(works, float("inf"))
    for number in range(rounds + 1):
        for name, work in works.items():
            quiet()
            start = time.perf_counter()
            work()
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
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


class Work:
    """What is measured of one system."""

    def __init__(self, spark: SparkSession, system: System, messages: int) -> None:
        self.spark = spark
        self.system = system
        self.messages = messages
        # how long its micro-batches took by themselves
        self.micro_batches: list[float] = []

    def write(self, again: bool = True) -> None:
        frame = self.spark.range(self.messages).selectExpr("lpad(cast(id as string), 100, ' ') value")
        options = self.system.writing(f"{self.system.topic}-again" if again else self.system.topic)
        frame.write.format(self.system.format).options(**options).mode("append").save()

    def _batch(self, **more: str) -> DataFrame:
        return self.spark.read.format(self.system.format).options(**self.system.reading, **more).load()

    def read(self, **more: str) -> None:
        noop(self._batch(**more))

    def aggregate(self) -> None:
        (found,) = self._batch().selectExpr("sum(length(value))").collect()
        assert found[0] == 100 * self.messages

    def stream(self) -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            given = {**self.system.reading, "startingOffsets": "earliest"}
            reading = self.spark.readStream.format(self.system.format).options(**given).load()
            writing = reading.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writing.trigger(availableNow=True).start()
            query.awaitTermination()
            took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
            self.micro_batches.append(sum(took) / 1000)


def measure(spark: SparkSession, systems: Mapping[str, System], messages: int) -> dict[str, dict[str, float]]:
    """Rows a second, by what was done and by system."""
    works = {name: Work(spark, system, messages) for name, system in systems.items()}
    for work in works.values():
        work.write(again=False)
    taken = {
        "write": in_turns({name: work.write for name, work in works.items()}),
        "batch into noop": in_turns({name: work.read for name, work in works.items()}),
        "aggregate": in_turns({name: work.aggregate for name, work in works.items()}),
        "stream into noop": in_turns({name: work.stream for name, work in works.items()}),
    }
    # without what Spark takes to start a query, which for a source in Python is a process
    taken["its micro-batch alone"] = {name: min(work.micro_batches) for name, work in works.items()}
    for more in dict.fromkeys(more for system in systems.values() for more in system.more):
        able = {name: work for name, work in works.items() if more in systems[name].more}
        taken[more] = in_turns({name: partial(work.read, **systems[name].more[more]) for name, work in able.items()})
    with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
        options = {name: read_options(each.reading) for name, each in systems.items() if each.format == "rocketmq"}
        taken["plain reader, no Spark"] = in_turns(
            {name: partial(plain, each, pool, messages) for name, each in options.items()}
        )
    return {what: {name: messages / took for name, took in each.items()} for what, each in taken.items()}


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
    names = sys.argv[2:] or NAMES
    spark = session(connector_jars() if "kafka" in names else [])
    with running(names) as systems:
        rates = measure(spark, systems, messages)
    made = messages / seconds(lambda: noop(spark.read.format("made").option("rows", messages).load()))
    peak = workers_peak()
    spark.stop()
    table = Table(title=f"{messages:,} messages of 100 bytes, {QUEUES} queues, local[{CORES}]: rows a second")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for what, found in rates.items():
        table.add_row(what, *(_cell(name, found) for name in names))
    console = Console()
    console.print(table)
    console.print(
        f"rows made of nothing: {made:,.0f} a second; most memory of a Python worker: {peak / 2**20:,.0f} MiB"
    )


def _cell(name: str, found: Mapping[str, float]) -> str:
    if name not in found:
        return ""
    ratio = f" ({found[name] / found['kafka']:.2f} ×)" if name != "kafka" and "kafka" in found else ""
    return f"{found[name]:,.0f}{ratio}"


if __name__ == "__main__":
    main()
