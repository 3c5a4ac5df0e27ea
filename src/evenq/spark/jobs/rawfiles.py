"""Messages straight to Parquet files, by the processes that read them.

A frame's way to Parquet leads from a Python worker, which has the columns, through Spark's JVM, which takes them apart
into rows and makes columns of them again: that takes longer than reading the messages. Where nothing is to be done with
the rows, the worker writes its columns itself, with Arrow. Spark plans and runs the tasks, and the messages are those
that the frame of the micro-batch would have: both come from the same ranges by the same reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evenq.client.read.ranges import QueueRange
from evenq.spark.jobs.partfiles import PartFile, Task, Written, run_tasks
from evenq.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["CODECS", "can_write", "folder_of", "partitions", "write_ranges"]

# What Arrow's names of codecs are, by Spark's.
CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4_raw": "lz4", "none": "none", "uncompressed": "none"}
# Columns with few values; in the others a dictionary is only in the way.
REPEATED = ("broker", "queue_id", "tags", "reconsume_times")
# Rows that are encoded together: one group of a Parquet file.
ROWS = 200_000


def can_write(writing: Mapping[str, str]) -> bool:
    """Whether these options of Spark's Parquet format are all understood here."""
    return all(name.lower() == "compression" and value.lower() in CODECS for name, value in writing.items())


def folder_of(day: date, topic: str) -> str:
    """The folder of a partition as Spark names it; of what topics may have in their names, it escapes the percent sign.

    >>> folder_of(date(2024, 10, 4), "%RETRY%billing")
    'date=2024-10-04/topic=%25RETRY%25billing'
    """
    return f"date={day.isoformat()}/topic={topic.replace('%', '%25')}"


def write_ranges(
    spark: SparkSession, options: ReadOptions, ranges: Sequence[QueueRange], folder: str, writing: Mapping[str, str]
) -> int:
    """Write the messages of these ranges to files below a folder; gives their number."""
    codec = CODECS[next(iter(writing.values()), "zstd").lower()]
    return sum(run_tasks(spark, options, ranges, partial(_write_task, options, folder, codec)).values())


def _write_task(options: ReadOptions, folder: str, codec: str, task: Task) -> Written:
    from evenq.spark.batches import record_batches

    number, ranges = task
    return write_batches(record_batches(options, ranges), Path(folder), f"part-{number:05}", codec)


def write_batches(batches: Iterable[pa.RecordBatch], folder: Path, name: str, codec: str) -> Written:
    """One file of this name in each partition that there is something of; gives the files and their rows."""
    files: dict[str, PartFile] = {}
    try:
        for batch in batches:
            for place, part in partitions(batch):
                if place not in files:
                    files[place] = PartFile(folder / place, name, codec=codec, group=ROWS, repeated=REPEATED)
                files[place].add(part)
    except BaseException:
        for file in files.values():
            file.drop()
        raise
    return {str(file.finish()): file.rows for file in files.values()}


def partitions(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by the folder that they belong to, without the column that the folder tells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(batch):
        return
    times, topics, rest = batch.column("timestamp"), batch.column("topic"), batch.drop_columns(["topic"])
    span = pc.min_max(times).as_py()
    names = pc.unique(topics).to_pylist()
    if span["min"].date() == span["max"].date() and len(names) == 1:
        yield folder_of(span["min"].date(), names[0]), rest
        return
    days = pc.floor_temporal(times, unit="day").cast(pa.date32())
    for day in pc.unique(days).to_pylist():
        for name in names:
            part = rest.filter(pc.and_(pc.equal(days, day), pc.equal(topics, name)))
            if len(part):
                yield folder_of(day, name), part
