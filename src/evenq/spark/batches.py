"""Ranges of queues as Arrow record batches: what a task of a query does. Needs no Spark."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from evenq.client.net.session import Session
from evenq.client.read.ranges import QueueRange
from evenq.client.read.reading import Chunk, RangeReader
from evenq.errors import (
    ArgumentError,
    ConnectError,
    OffsetsLost,
    RecordError,
    RemoteError,
    RequestTimeout,
    TopicNotFound,
)
from evenq.model import MessageQueue, Property
from evenq.protocol.columns import decode_many
from evenq.protocol.columns.arrays import texts
from evenq.protocol.filters import EVERYTHING, TAG
from evenq.protocol.names import RETRY
from evenq.spark.deduplicate import Deduplicator
from evenq.spark.losses import on_loss
from evenq.spark.marks import MARK, PROPERTY
from evenq.spark.options import ReadOptions
from evenq.spark.settling import Run, event_loop, settle

__all__ = ["record_batches"]

log = logging.getLogger(__name__)

# A batch is full with so many rows, or so many bytes of records.
ROWS = 10_000
BYTES = 4 * 1024 * 1024
# Seconds between two looks for a broker that cannot be reached.
PAUSE = 1.0
# What a broker is asked for that is to leave nothing out.
_UNFILTERED = (EVERYTHING, TAG)


def record_batches(options: ReadOptions, ranges: Sequence[QueueRange]) -> Generator[pa.RecordBatch, None, None]:
    """All messages of the ranges, queue after queue, offset after offset, in batches of about 10,000.

    The event loop runs only while the next batch is wanted. Answers that come meanwhile wait in the socket, which is
    all the overlap there is to gain, and no second thread competes for the interpreter.
    """
    settle()
    with event_loop() as run:
        session = run(_open(options))
        try:
            if options.deduplicate:
                for part in ranges:
                    yield from _once(run, session, options, part)
            else:
                yield from _all(run, session, options, ranges)
        finally:
            run(session.close())


def _all(
    run: Run,
    session: Session,
    options: ReadOptions,
    ranges: Sequence[QueueRange],
    lost: Callable[[OffsetsLost], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    chunks = _read(session, options, ranges, lost or on_loss(options))
    while came := run(_gather(chunks)):
        batch = _decode(options, came)
        if len(batch):
            yield batch


def _once(run: Run, session: Session, options: ReadOptions, part: QueueRange) -> Iterator[pa.RecordBatch]:
    """The messages of one range without those that are there a second time."""
    marked = replace(options, include_properties=True)

    def earlier(low: int, high: int) -> list[str | None]:
        # what is gone by now cannot be looked at, and is nobody's loss
        found = _all(run, session, marked, [QueueRange(part.queue, low, high)], lost=lambda loss: None)
        return [mark for batch in found for mark in _marks(batch)]

    seen = Deduplicator(part.start, earlier)
    for batch in _all(run, session, marked, [part]):
        fresh = batch.filter(pa.array(seen.fresh(_marks(batch))))
        if len(fresh):
            yield fresh if options.include_properties else fresh.drop_columns(["properties"])


def _marks(batch: pa.RecordBatch) -> list[str | None]:
    keys = batch.column("unique_key")
    found = pc.coalesce(
        pc.map_lookup(batch.column("properties"), PROPERTY, "last"),
        pc.if_else(pc.match_substring_regex(keys, MARK), keys, None),
    )
    marks: list[str | None] = found.to_pylist()
    return marks


async def _open(options: ReadOptions) -> Session:
    return options.connecting.session()


async def _read(
    session: Session, options: ReadOptions, ranges: Sequence[QueueRange], lost: Callable[[OffsetsLost], None]
) -> AsyncIterator[Chunk]:
    """Read the ranges; topic after topic where something is left out, since brokers cannot filter all of them."""
    parts: Iterable[Iterable[QueueRange]] = [ranges]
    if options.expression != _UNFILTERED:
        parts = (part for _, part in groupby(ranges, lambda each: each.queue.topic))
    for part in parts:
        async for chunk in _patiently(session, options, part, lost):
            yield chunk


async def _patiently(
    session: Session, options: ReadOptions, ranges: Iterable[QueueRange], lost: Callable[[OffsetsLost], None]
) -> AsyncIterator[Chunk]:
    """Read the ranges. A broker that cannot be reached is waited for; then what it has counts as lost."""
    todo = deque(ranges)
    since = time.monotonic()
    while todo:
        try:
            expression, expression_type = await _filter(session, options, todo[0].queue)
            reader = RangeReader(
                session,
                options.pull_group,
                expression=expression,
                expression_type=expression_type,
                on_loss=lost,
            )
            async for chunk in reader.read(list(todo)):
                _drop_read(todo, chunk)
                since = time.monotonic()
                yield chunk
            return
        except (ConnectError, RequestTimeout, TopicNotFound) as error:
            if time.monotonic() - since > options.connecting.patience:
                _give_up(todo, options, error)
                since = time.monotonic()
            else:
                log.warning("%s; trying again in %.0f s", error, PAUSE)
                await asyncio.sleep(PAUSE)


async def _filter(session: Session, options: ReadOptions, queue: MessageQueue) -> tuple[str, str]:
    """What the broker of a queue is to leave out.

    One that stores each batch as one record looks at that, which has neither tags nor properties: it is asked for
    everything, and tags are compared here, as they always are.
    """
    if options.expression == _UNFILTERED:
        return _UNFILTERED
    address = (await session.routes.get(queue.topic)).address(queue.broker)
    if not await session.remote.stores_batches(address, queue.topic):
        return options.expression
    if options.sql is not None:
        hint = f"brokers store each batch of {queue.topic} as one record: leave it out, and filter the frame"
        raise ArgumentError("sql", options.sql, hint)
    return _UNFILTERED


def _drop_read(todo: deque[QueueRange], chunk: Chunk) -> None:
    """Take what was read off what is to be read. Chunks come in order, and one that is empty does not come at all."""
    while todo[0].queue != chunk.queue or todo[0].stop < chunk.stop:
        todo.popleft()
    todo[0] = QueueRange(chunk.queue, chunk.stop, todo[0].stop)


def _give_up(todo: deque[QueueRange], options: ReadOptions, error: RemoteError) -> None:
    if options.fail_on_data_loss:
        raise error
    lost = todo.popleft()
    log.error("%s cannot be reached; its offsets %d to %d are passed over: %s", *_shown(lost), error)


def _shown(part: QueueRange) -> tuple[str, int, int]:
    return str(part.queue), part.start, part.stop - 1


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


def _decode(options: ReadOptions, chunks: Sequence[Chunk]) -> pa.RecordBatch:
    again = any(chunk.queue.topic.startswith(RETRY) for chunk in chunks)
    poisoned: list[RecordError] | None = None if options.fail_on_data_loss else []
    batch = decode_many(
        [chunk.body for chunk in chunks],
        brokers=[chunk.queue.broker for chunk in chunks],
        spans=[(chunk.start, chunk.stop) for chunk in chunks],
        include_properties=options.include_properties or again,
        property_columns=options.property_columns,
        poisoned=poisoned,
    )
    for error in poisoned or ():
        log.warning("left out: %s", error)
    if again and options.join:
        batch = _as_sent(batch)
    if again and not options.include_properties:
        batch = batch.drop_columns(["properties"])
    tags = options.wanted_tags
    if tags:
        # the broker compares hashes of tags only
        batch = batch.filter(pc.is_in(batch.column("tags"), texts(sorted(tags))))
    return batch


def _as_sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Messages that a member of the group gave back, under the topics that they were sent to."""
    sent_to = pc.map_lookup(batch.column("properties"), Property.RETRY_TOPIC, "last")
    return batch.set_column(0, batch.schema.field("topic"), pc.coalesce(sent_to, batch.column("topic")))
