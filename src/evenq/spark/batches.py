"""Ranges of queues as Arrow record batches: what a task of a query does. Needs no Spark."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from evenq.client.reading import Chunk, QueueRange, RangeReader, raise_loss
from evenq.client.session import Session
from evenq.errors import OffsetsLost
from evenq.protocol.columns import decode_many
from evenq.spark.options import ReadOptions

__all__ = ["on_loss", "record_batches"]

log = logging.getLogger(__name__)

# A batch is full with so many rows, or so many bytes of records.
ROWS = 10_000
BYTES = 4 * 1024 * 1024


def record_batches(options: ReadOptions, ranges: Sequence[QueueRange]) -> Generator[pa.RecordBatch, None, None]:
    """All messages of the ranges, queue after queue, offset after offset, in batches of about 10,000.

    The event loop runs only while the next batch is wanted. Answers that come meanwhile wait in the socket, which is
    all the overlap there is to gain, and no second thread competes for the interpreter.
    """
    with asyncio.Runner() as runner:
        session = runner.run(_open(options))
        try:
            reader = RangeReader(session, options.pull_group, expression=options.tags, on_loss=on_loss(options))
            chunks = reader.read(ranges)
            while came := runner.run(_gather(chunks)):
                batch = _decode(options, came)
                if len(batch):
                    yield batch
        finally:
            runner.run(session.close())


def on_loss(options: ReadOptions) -> Callable[[OffsetsLost], None]:
    """What to do about messages that are gone."""
    return raise_loss if options.fail_on_data_loss else _log_loss


def _log_loss(loss: OffsetsLost) -> None:
    log.warning("%s", loss)


async def _open(options: ReadOptions) -> Session:
    return Session(options.namesrv, timeouts=options.timeouts)


async def _gather(chunks: AsyncIterator[Chunk]) -> list[Chunk]:
    """As many chunks as make a batch; none at the end."""
    found: list[Chunk] = []
    rows = size = 0
    async for chunk in chunks:
        found.append(chunk)
        rows += len(chunk)
        size += len(chunk.body)
        if rows >= ROWS or size >= BYTES:
            break
    return found


def _decode(options: ReadOptions, chunks: Iterable[Chunk]) -> pa.RecordBatch:
    batch = decode_many(
        [chunk.body for chunk in chunks],
        brokers=[chunk.queue.broker for chunk in chunks],
        include_properties=options.include_properties,
    )
    tags = options.wanted_tags
    if tags:
        # the broker compares hashes of tags only
        batch = batch.filter(pc.is_in(batch.column("tags"), pa.array(sorted(tags))))
    return batch
