"""Facts straight to Parquet files, by the processes that read the messages.

The way through Spark's rows (:func:`evenq.spark.jobs.audit.facts.message_facts`) takes longer than the reading itself;
so where all machines see the same files, workers make facts of their columns with Arrow and write them. Spark plans and
runs the tasks. Both ways give the same facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evenq.client.read.ranges import QueueRange
from evenq.model import MessageQueue, Property
from evenq.spark.jobs.partfiles import PartFile, Task, Written, run_tasks
from evenq.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["facts_of", "write_facts"]

# Rows that are encoded together: one group of a Parquet file.
ROWS = 500_000


def write_facts(
    spark: SparkSession,
    options: ReadOptions,
    ranges: Sequence[QueueRange],
    places: Mapping[MessageQueue, int],
    folder: Path,
) -> None:
    """Write the facts of the messages in these ranges to files in a folder. The same again writes the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    run_tasks(spark, options, ranges, partial(_write, options, places, str(folder)))


def _write(options: ReadOptions, places: Mapping[MessageQueue, int], folder: str, task: Task) -> Written:
    from evenq.spark.batches import record_batches

    number, ranges = task
    file = PartFile(
        Path(folder), f"part-{number:05}", codec="lz4", group=ROWS, repeated=["place"], statistics=["place"]
    )
    try:
        for part in ranges:
            for batch in record_batches(options, [part]):
                file.add(facts_of(batch, places[part.queue]))
    except BaseException:
        file.drop()
        raise
    path = file.finish()
    return {} if path is None else {str(path): file.rows}


def facts_of(batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
    """What :func:`evenq.spark.jobs.audit.facts.message_facts` makes of messages, of one queue."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from evenq.protocol.columns.arrays import numbers

    sharding, real, half = (batch.column(name) for name in (Property.SHARDING_KEY, Property.REAL_TOPIC, Property.HALF))
    columns = {
        "place": numbers(np.full(len(batch), place, np.int64)),
        "offset": batch.column("offset"),
        "stored": _milliseconds(batch.column("timestamp")),
        "born": _milliseconds(batch.column("born_timestamp")),
        "size": pc.binary_length(batch.column("value")),
        "key": pc.coalesce(sharding, batch.column("keys")),
        "sharded": pc.is_valid(sharding),
        "waited": pc.or_(pc.is_valid(real), pc.is_valid(half)),
        "unique_key": batch.column("unique_key"),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _milliseconds(times: pa.Array) -> pa.Array:
    import pyarrow as pa

    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
