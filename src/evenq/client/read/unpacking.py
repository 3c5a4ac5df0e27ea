"""Chunks of records as messages, or as Arrow columns: what a consumer hands to its caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from evenq.client.read.memory import keep_freed
from evenq.client.read.reading import Chunk
from evenq.errors import RecordError
from evenq.protocol.filters import passes
from evenq.protocol.records import MIN_RECORD, decode_some
from evenq.protocol.view import MessageView

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["UNREADABLE_PAUSE", "Tags", "Unread", "as_columns", "as_messages"]

log = logging.getLogger(__name__)

# An answer that cannot be unpacked is asked for once more after so many seconds.
UNREADABLE_PAUSE = 3.0

# The tags that are wanted of a topic, none for all: brokers compare hashes of tags only.
Tags = Callable[[str], Collection[str]]


def as_messages(chunk: Chunk, tags: Tags) -> Iterator[tuple[list[MessageView], int]]:
    """The messages of a chunk, and where the next ones begin; in pieces, where compressed bodies become very large. A
    message that cannot be read is left out, and reported."""
    unread = Unread(chunk, tags)
    while unread.bytes:
        messages = unread.take(len(chunk.body))
        yield messages, unread.next_offset
    if not chunk.body:
        yield [], chunk.stop


class Unread:
    """A chunk that is unpacked bit by bit, as its messages are wanted.

    What is unpacked long before it is wanted is out of the processor's cache by then, and takes four times the memory.
    """

    __slots__ = ("_at", "_chunk", "_counted", "_tags", "next_offset", "start", "stop")

    def __init__(self, chunk: Chunk, tags: Tags, counted: Callable[[int], None] = lambda count: None) -> None:
        self.start = chunk.start
        self.stop = chunk.stop
        # what lies before it was given
        self.next_offset = chunk.start
        self._chunk = chunk
        self._tags = tags
        self._counted = counted
        self._at = 0

    @property
    def bytes(self) -> int:
        return len(self._chunk.body) - self._at

    @property
    def count(self) -> int:
        """How many messages are left in it, at most."""
        return min(self.stop - self.next_offset, self.bytes // MIN_RECORD)

    def take(self, most: int) -> list[MessageView]:
        """The next messages, about ``most`` of them: fewer, even none, where some are not wanted or cannot be read."""
        chunk = self._chunk
        poisoned: list[RecordError] = []
        messages, self._at = decode_some(chunk.body, self._at, most, broker=chunk.queue.broker, poisoned=poisoned)
        _report(poisoned)
        if messages and (messages[0].queue_offset < self.next_offset or messages[-1].queue_offset >= self.stop):
            # a batch that lies across an end of the chunk
            messages = [message for message in messages if self.next_offset <= message.queue_offset < self.stop]
        if self._at == len(chunk.body):
            self.next_offset = chunk.stop
        elif messages:
            self.next_offset = messages[-1].queue_offset + 1
        wanted = self._tags(chunk.queue.topic)
        found = [message for message in messages if passes(wanted, message.tags)] if wanted else messages
        self._counted(len(found))
        return found


def as_columns(chunks: Sequence[Chunk], tags: Tags, *, include_properties: bool = False) -> pa.RecordBatch:
    """The messages of all chunks as one record batch, without an object for any of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from evenq.protocol.columns import decode_many
    from evenq.protocol.columns.arrays import texts

    keep_freed()
    poisoned: list[RecordError] = []
    batches: list[pa.RecordBatch] = []
    for wanted, group in groupby(chunks, key=lambda chunk: frozenset(tags(chunk.queue.topic))):
        part = list(group)
        batch = decode_many(
            [chunk.body for chunk in part],
            brokers=[chunk.queue.broker for chunk in part],
            spans=[(chunk.start, chunk.stop) for chunk in part],
            include_properties=include_properties,
            poisoned=poisoned,
        )
        if wanted:
            batch = batch.filter(pc.is_in(batch.column("tags"), texts(sorted(wanted))))
        batches.append(batch)
    _report(poisoned)
    if not batches:
        return decode_many([], brokers=[], include_properties=include_properties)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _report(poisoned: list[RecordError]) -> None:
    for error in poisoned:
        log.error("left out: %s", error)
