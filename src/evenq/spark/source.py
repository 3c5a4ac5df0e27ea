"""``spark.read.format("rocketmq")`` and ``readStream``: the thin layer between Spark's interface and the rest."""

# ruff: noqa: N802 (the names of methods are Spark's)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from evenq.client.reading import QueueRange
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.protocol import columns
from evenq.spark.batches import on_loss, record_batches
from evenq.spark.lookup import Lookup
from evenq.spark.offsets import Progress, by_topic
from evenq.spark.options import ReadOptions, read_options
from evenq.spark.planning import advance, between, in_doubt, is_news, plan, resolve

__all__ = ["BatchReader", "RocketMQSource", "StreamReader"]


class RocketMQSource(DataSource):
    """RocketMQ topics as tables and as streams.

    >>> spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("subscribe", "orders").load()
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @cached_property
    def checked(self) -> ReadOptions:
        # Spark makes the source once, asks for the schema and sends it around from then on: this goes with it
        return read_options(self.options)

    def schema(self) -> StructType:
        return from_arrow_schema(columns.schema(self.checked.include_properties))

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check(schema)
        return BatchReader(self.checked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._check(schema)
        return StreamReader(self.checked)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise ArgumentError(
                "schema", schema.simpleString(), f"leave schema() out: the columns are {self.schema().simpleString()}"
            )


def _partitions(ranges: Sequence[QueueRange], options: ReadOptions) -> list[InputPartition]:
    return [InputPartition(task) for task in plan(ranges, options.min_partitions)]


class _Reader:
    """What both readers do in a task."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(self.options, partition.value)


class BatchReader(_Reader, DataSourceReader):
    """Reads what is there between two bounds, which are settled when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._starting, self._ending = options.batch_bounds()

    def partitions(self) -> list[InputPartition]:
        with Lookup(self.options) as lookup:
            queues = lookup.queues()
            earliest, latest = lookup.earliest(queues), lookup.latest(queues)
        strict = self.options.fail_on_data_loss
        starts = resolve("startingOffsets", self._starting, earliest, latest, strict=strict)
        stops = resolve("endingOffsets", self._ending, earliest, latest, strict=strict)
        # Spark makes a partition of None where there is none
        return _partitions(between(starts, stops), self.options) or [InputPartition(())]


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in micro-batches. All that it must remember is in the offset values, which name their own start."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._starting = options.stream_start()
        # with the trigger AvailableNow: the offsets at its beginning, where it ends
        self._target: dict[MessageQueue, int] | None = None

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.options)

    @cached_property
    def _initial(self) -> Progress:
        # asked for more than once: it must not move in between
        queues = self._lookup.queues(fresh=True)
        earliest, latest = self._lookup.earliest(queues), self._lookup.latest(queues)
        strict = self.options.fail_on_data_loss
        return Progress.at(resolve("startingOffsets", self._starting, earliest, latest, strict=strict))

    def initialOffset(self) -> dict[str, Any]:
        return self._initial.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._lookup.latest(self._lookup.queues(fresh=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        done = Progress.from_json(start)
        latest = self._target if self._target is not None else self._latest()
        earliest = self._lookup.earliest(in_doubt(done, latest))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ahead = advance(done, latest, earliest, most, on_loss(self.options))
        # the same value again is how Spark is told that nothing is new
        return ahead.to_json() if is_news(done, ahead) else start

    def reportLatestOffset(self) -> dict[str, Any]:
        return by_topic(self._latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [] if start == end else _partitions(Progress.from_json(end).ranges, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        if self.options.group is not None:
            # a broker learns of the group by its pulls: where nothing was read it would not know it
            self._lookup.commit(self.options.group, Progress.from_json(end).moved)

    def stop(self) -> None:
        if "_lookup" in self.__dict__:
            self._lookup.close()

    def _latest(self) -> dict[MessageQueue, int]:
        return self._lookup.latest(self._lookup.queues())
