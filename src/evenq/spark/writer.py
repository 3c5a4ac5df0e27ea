"""What Spark asks of a sink, for batches and streams: record batches in, messages out.

At least once: a task that fails, or a batch that is run again, sends its rows again. Each row carries a mark
(:mod:`evenq.spark.marks`) by which a reader with the option ``deduplicate`` leaves them out.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from evenq.spark.marks import Origin
from evenq.spark.outbox import Outbox
from evenq.spark.placing import Placing, topics_of
from evenq.spark.rows import RowPacker
from evenq.spark.sinkoptions import WriteOptions

__all__ = ["BatchWriter", "StreamWriter", "Written", "write"]

# Rows that are packed before the event loop gets its turn: brokers work on some rows while we pack the next.
TOGETHER = 2000


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


def write(options: WriteOptions, origin: Origin, batches: Iterator[pa.RecordBatch]) -> int:
    """Send all rows and wait until they are stored; gives their number."""
    with asyncio.Runner() as runner:
        outbox = runner.run(_open(options))
        packer, placing = RowPacker(origin, outbox.ids, options.max_message_size), Placing(options, origin)
        try:
            for batch in batches:
                queues = runner.run(outbox.queues(topics_of(batch, options)))
                for start in range(0, len(batch), TOGETHER):
                    part = batch.slice(start, TOGETHER)
                    places = placing.place(part, packer.row, queues)
                    runner.run(outbox.put(packer.pack(part), places))
            runner.run(outbox.flush())
        finally:
            runner.run(outbox.close())
    return packer.row


async def _open(options: WriteOptions) -> Outbox:
    return Outbox(options.connecting.session(), options)


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame. Each write is a query of its own with one epoch: marks tell the tries of a task."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.query = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write(self.options, Origin(self.query, 0, _task().partitionId()), iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. The epoch is the number of the batch, which is the same when it is run again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        query, epoch = (task.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        assert query is not None
        assert epoch is not None
        return Written(write(self.options, Origin(query, int(epoch), task.partitionId()), iterator))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    return task
