"""What Spark asks of a source that is read, in batches and in streams: the thin layer over all the rest."""

# ruff: noqa: N802 (the names of methods are Spark's)

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from evenq.client.read.ranges import QueueRange
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING
from evenq.spark.bounds import between
from evenq.spark.lookup import Lookup
from evenq.spark.losses import on_loss
from evenq.spark.offsets import Progress, by_topic
from evenq.spark.options import ReadOptions
from evenq.spark.planning import Pacing, advance, in_doubt, is_news, plan
from evenq.spark.pushdown import Restriction, Span, push

if TYPE_CHECKING:
    from evenq.spark.membership import Membership

__all__ = ["BatchReader", "StreamReader"]


def _partitions(ranges: Sequence[QueueRange], options: ReadOptions) -> list[InputPartition]:
    tasks = plan(ranges, at_least=options.min_partitions, largest=options.max_records_per_partition)
    return [InputPartition(task) for task in tasks]


class _Reader:
    """What both readers do in a task."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from evenq.spark.batches import record_batches

        return record_batches(self.options, partition.value)


class BatchReader(_Reader, DataSourceReader):
    """Reads what is there between two bounds, which are settled when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._starting, self._ending = options.batch_bounds()
        self._needed = Restriction()

    @property
    def pushFilters(self) -> _Pushing:
        return _Pushing(self._push)

    def partitions(self) -> list[InputPartition]:
        with Lookup(self.options) as lookup:
            ends = lookup.ends(lookup.queues())
            starts, stops = lookup.find(self._starting, ends), lookup.find(self._ending, ends)
            ranges = self._narrowed(lookup, between(self._starting, starts, stops))
        # Spark makes a partition of None where there is none
        return _partitions(ranges, self.options) or [InputPartition(())]

    def _push(self, filters: Iterable[Filter]) -> list[Filter]:
        self._needed, left = push(filters, tags_too=self.options.sql is None)
        if self._needed.tags is not None:
            tags = self._needed.tags & (self.options.wanted_tags or self._needed.tags)
            self._needed = replace(self._needed, tags=tags)
            self.options = replace(self.options, tags=" || ".join(sorted(tags)) or EVERYTHING)
        return left

    def _narrowed(self, lookup: Lookup, ranges: list[QueueRange]) -> list[QueueRange]:
        """What the filters leave of the ranges."""
        needed = self._needed
        if needed.tags is not None and not needed.tags:
            return []
        ranges = [needed.offsets.cut(part) for part in ranges if needed.admits(part.queue)]
        low, high = (
            {} if time is None else lookup.at_times({part.queue: max(0, time) for part in ranges if part})
            for time in (needed.times.low, needed.times.high)
        )
        return [Span(low.get(part.queue), high.get(part.queue)).cut(part) for part in ranges]


class _Pushing:
    """What Spark calls as ``pushFilters``.

    Filter push-down is off unless ``spark.sql.python.filterPushdown.enabled`` says otherwise, and Spark then refuses a
    reader that has the method at all. A query is right without it, so this passes for the one that every reader has.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: Iterable[Filter]) -> list[Filter]:
        return self._push(filters)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in micro-batches. All that it must remember is in the offset values, which name their own start.

    With ``group.join`` it reads the queues that the group gives to this query, from where the group is.
    """

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options)
        self._starting = options.stream_start()
        self._clock = clock
        self._pacing = Pacing(options.min_offsets_per_trigger, options.max_trigger_delay, clock)
        # with the trigger AvailableNow: the offsets at its beginning, where it ends
        self._target: dict[MessageQueue, int] | None = None
        # what the group was last told
        self._told: dict[MessageQueue, int] = {}
        self._end: AbstractContextManager[None] = nullcontext()

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.options, self._clock)

    @cached_property
    def _membership(self) -> Membership:
        from evenq.spark.membership import GracefulEnd, Membership

        self._end = GracefulEnd()
        return Membership(self.options)

    @cached_property
    def _initial(self) -> Progress:
        # asked for more than once: it must not move in between
        if self.options.join:
            return Progress.at({})
        ends = self._lookup.ends(self._lookup.queues(fresh=True))
        return Progress.at(self._lookup.find(self._starting, ends))

    def initialOffset(self) -> dict[str, Any]:
        return self._initial.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        queues = self._lookup.queues(fresh=True, lenient=True)
        if self._join(queues):
            self._membership.settled()
        self._target = self._lookup.latest(queues, lenient=True)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = Progress.from_json(start)
        # Spark comes here when the batch that ended at `start` is done, and tells commit() of it with the next one only
        done = self._held(before) if self.options.join else before
        self._tell(before)
        ahead = self._ahead(done, limit)
        at_once = self._target is not None or isinstance(limit, ReadAllAvailable)
        if is_news(done, ahead) and (at_once or self._pacing.enough(ahead)):
            if self.options.join:
                ahead = self._membership.begin(ahead)
            if any(ahead.ranges) or not self.options.join:
                self._pacing.went()
                return ahead.to_json()
        # the same value again is how Spark is told that nothing is new
        return start

    def reportLatestOffset(self) -> dict[str, Any]:
        return by_topic(self._latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [] if start == end else _partitions(Progress.from_json(end).ranges, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        self._tell(Progress.from_json(end))

    def stop(self) -> None:
        with self._end:
            for name in ("_membership", "_lookup"):
                if name in self.__dict__:
                    self.__dict__.pop(name).close()

    def _held(self, before: Progress) -> Progress:
        """The queues that are ours now, and where each goes on."""
        joined = self._join(self._lookup.queues(lenient=True))
        return Progress.at(self._membership.offsets(before) if joined else {})

    def _join(self, queues: Iterable[MessageQueue]) -> bool:
        """Take part in the group with the topics that there are; False while there are none."""
        topics = {*(self.options.topics or ()), *(queue.topic for queue in queues)}
        if not (self.options.join and topics):
            return False
        self._membership.join(topics)
        return True

    def _ahead(self, done: Progress, limit: ReadLimit) -> Progress:
        """What there is to read."""
        latest = self._target if self._target is not None else self._latest(done)
        if self.options.join:
            latest = {queue: end for queue, end in latest.items() if queue in done.reached}
        doubtful = in_doubt(done, latest)
        earliest = self._lookup.earliest(doubtful, lenient=True)
        latest = {queue: end for queue, end in latest.items() if queue not in doubtful or queue in earliest}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return advance(done, latest, earliest, most, on_loss(self.options))

    def _latest(self, done: Progress | None = None) -> dict[MessageQueue, int]:
        queues = done.reached if self.options.join and done is not None else self._lookup.queues(lenient=True)
        return self._lookup.latest(queues, lenient=True)

    def _tell(self, done: Progress) -> None:
        """Show the group how far the query is. A member does that by itself."""
        if self.options.group is None or self.options.join:
            return
        # a broker learns of the group by its pulls: where nothing was read it would not know it
        news = {queue: offset for queue, offset in done.moved.items() if self._told.get(queue) != offset}
        if news:
            told = self._lookup.commit(self.options.group, news)
            self._told |= {queue: news[queue] for queue in told}
