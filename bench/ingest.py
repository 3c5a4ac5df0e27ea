"""How fast ``evenq ingest`` writes a topic to Parquet, next to reading it for nothing.

``python -m bench.ingest [messages, default 5,000,000] [rounds, default 2]``. Values of 100 bytes in 8 queues of one
embedded broker, ``local[2]``: the broker, Spark and its Python workers share the machine. Both are streams with the
trigger AvailableNow; one ends in the format noop, one in Parquet. The best of some rounds, in
turn, after a small one to warm up.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import evenq
from bench.filling import fill
from evenq.spark.jobs.compaction import compact
from evenq.spark.jobs.files import LocalFiles
from evenq.spark.jobs.ingest import ingest
from evenq.spark.jobs.publishing import Place, data_files
from evenq.spark.jobs.session import session
from tests.clusters import create_topic

QUEUES = 8
CORES = 2
GOAL = 0.7


def noop(spark: SparkSession, namesrv: str, topic: str) -> float:
    """Seconds to read a topic as a stream, and do nothing with it."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format("rocketmq").options(namesrv=namesrv, subscribe=topic)
        writing = stream.option("startingOffsets", "earliest").load().writeStream.format("noop")
        writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - start


def parquet(spark: SparkSession, namesrv: str, topic: str, messages: int, folder: Path) -> float:
    """Seconds to write a topic to Parquet; a topic that is written again goes to a table of its own."""
    done = ingest(topic, str(folder), namesrv=namesrv, once=True, spark=spark)
    assert (done.rows, done.bad) == (messages, 0)
    return done.seconds


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    console = Console()
    settings = {"spark.driver.memory": "2g", "spark.log.level": "ERROR"}
    spark = session("bench ingest", f"local[{CORES}]", settings)
    with evenq.testing.cluster(brokers=1) as cluster, tempfile.TemporaryDirectory() as out:
        sizes = {"warm": max(1, messages // 20), "bench": messages}
        for topic, size in sizes.items():
            create_topic(cluster.namesrv, topic, queues=QUEUES)
            fill(cluster.namesrv, topic, size)
        names = iter(range(1000))

        def to_parquet(topic: str) -> float:
            return parquet(spark, cluster.namesrv, topic, sizes[topic], Path(out, f"{topic}-{next(names)}"))

        work: dict[str, Callable[[str], float]] = {
            "source into noop": lambda topic: noop(spark, cluster.namesrv, topic),
            "ingest to Parquet, raw": to_parquet,
        }
        for run in work.values():
            run("warm")
        best = dict.fromkeys(work, float("inf"))
        for _ in range(rounds):
            for name, run in work.items():
                best[name] = min(best[name], run("bench"))
        table = Path(out, f"bench-{next(names) - 1}")
        sizes_of_files = data_files(LocalFiles().walk(str(table)))
        start = time.perf_counter()
        merged = compact(spark, Place(LocalFiles(), str(table)), "parquet", {"compression": "zstd"})
        compacting = time.perf_counter() - start
    spark.stop()
    rates = {name: messages / seconds for name, seconds in best.items()}
    shown = Table(title=f"{messages:,} messages of 100 bytes, {QUEUES} queues, local[{CORES}]")
    for heading in ("", "rows a second", "of noop"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, rate in rates.items():
        shown.add_row(name, f"{rate:,.0f}", f"{rate / rates['source into noop']:.2f}")
    console.print(shown)
    console.print(
        f"{len(sizes_of_files)} files, {sum(sizes_of_files.values()) / 2**20:,.0f} MiB; "
        f"{merged.merged} merged into {merged.made} in {compacting:.1f} s; goal {GOAL} of noop"
    )


if __name__ == "__main__":
    main()
