"""What Spark asks of a sink, for batches and streams: record batches in, messages out.

At least once: a task that fails, or a batch that is run again, sends its rows again. Each row carries a mark
(:mod:`evenq.spark.marks`) by which a reader with the option ``deduplicate`` leaves them out.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from evenq.errors import ArgumentError
from evenq.spark.marks import Origin
from evenq.spark.outbox import Outbox
from evenq.spark.placing import Placing, topics_of
from evenq.spark.rows import RowPacker
from evenq.spark.settling import event_loop, settle
from evenq.spark.sinkoptions import WriteOptions

__all__ = ["BatchWriter", "RateLimit", "StreamWriter", "Written", "write"]

# Rows that are packed before the event loop gets its turn: brokers work on some rows while we pack the next.
TOGETHER = 10_000
# Under a limit, rows leave in so many steps a second.
STEPS = 10


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


def write(options: WriteOptions, origin: Origin, batches: Iterator[pa.RecordBatch]) -> int:
    """Send all rows and wait until they are stored; gives their number."""
    settle()
    with event_loop() as run:
        outbox = run(_open(options))
        packer, placing = RowPacker(origin, options.max_message_size), Placing(options, origin)
        limit = None if options.rows_per_second is None else RateLimit(options.rows_per_second)
        step = TOGETHER if limit is None else limit.step
        try:
            for batch in batches:
                queues = run(outbox.queues(topics_of(batch, options)))
                for start in range(0, len(batch), step):
                    part = batch.slice(start, step)
                    places = placing.place(part, packer.row, queues)
                    run(outbox.put(packer.pack(part), places))
                    if limit is not None:
                        run(outbox.flush())
                        run(asyncio.sleep(limit.pause(len(part))))
            run(outbox.flush())
        finally:
            run(outbox.close())
    return packer.row


class RateLimit:
    """Keeps a task to so many rows a second, in small steps and counted from its beginning.

    The last step is waited for too, so that the task after it may begin at once.
    """

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._began = clock()
        self._rows = 0
        # how many rows make a step
        self.step = max(1, min(TOGETHER, rate // STEPS))

    def pause(self, rows: int) -> float:
        """So many more rows were sent: the seconds to wait before the next ones."""
        self._rows += rows
        return max(0.0, self._began + self._rows / self._rate - self._clock())


async def _open(options: WriteOptions) -> Outbox:
    return Outbox(options.connecting.session(), options)


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame. Each write is a query of its own with one epoch, unless it is told a writer's name and an epoch:
    marks tell the tries of a task, or those of the whole write."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.query = options.writer or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        origin = Origin(self.query, self.options.epoch or 0, _task().partitionId())
        return Written(write(self.options, origin, iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. The epoch is the number of the batch, which is the same when it is run again."""

    def __init__(self, options: WriteOptions) -> None:
        if options.writer is not None:
            raise ArgumentError("writerId", options.writer, "a stream has a name and epochs of its own: leave it out")
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
