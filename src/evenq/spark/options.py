"""The options of reading ``format("rocketmq")``: strings in, one checked value out, once.

Every option is a row of a table; the names are those of Spark's Kafka connector where it has the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING, SQL92, TAG, parse_tags
from evenq.protocol.schema import schema
from evenq.spark import texts
from evenq.spark.bounds import AtTime, Bound, Place, places
from evenq.spark.connecting import CONNECTION, Connecting
from evenq.spark.table import Option, read_table

__all__ = ["DEFAULT_GROUP", "OPTIONS", "ReadOptions", "read_options"]

# The name that pulls carry where the query has no group of its own.
DEFAULT_GROUP = "evenq-spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a query reads, and how."""

    connecting: Connecting
    # exactly one of these three is given
    topics: tuple[str, ...] | None
    pattern: str | None
    assigned: tuple[MessageQueue, ...] | None
    starting: Bound | None
    ending: Bound | None
    tags: str
    sql: str | None
    group: str | None
    join: bool
    strategy: str
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float
    fail_on_data_loss: bool
    deduplicate: bool
    include_properties: bool
    property_columns: tuple[str, ...]

    @property
    def pull_group(self) -> str:
        return self.group or DEFAULT_GROUP

    @property
    def expression(self) -> tuple[str, str]:
        """What brokers filter by, and of which type that is."""
        return (self.tags, TAG) if self.sql is None else (self.sql, SQL92)

    @property
    def wanted_tags(self) -> frozenset[str]:
        return parse_tags(self.tags)

    def batch_bounds(self) -> tuple[Bound, Bound]:
        """Where a batch query begins and ends: by default at the earliest and the latest offsets."""
        if self.join:
            raise ArgumentError("group.join", True, "only a stream can be a member of a group: use readStream")
        starting = self.starting or Bound("startingOffsets", Place.EARLIEST)
        ending = self.ending or Bound("endingOffsets", Place.LATEST)
        _refuse(starting, Place.LATEST, "a batch query would read nothing")
        _refuse(ending, Place.EARLIEST, "a query would end before it begins")
        return starting, ending

    def stream_start(self) -> Bound:
        """Where a streaming query without a checkpoint begins: by default at the latest offsets."""
        if self.ending is not None:
            raise ArgumentError(self.ending.option, self.ending.shown, "a stream has no end: leave it out, or use read")
        starting = self.starting or Bound("startingOffsets", Place.LATEST)
        if self.join and starting.queues is not None:
            raise ArgumentError(
                starting.option, starting.shown, "with group.join the group's offsets count: give earliest or latest"
            )
        return starting


def _refuse(bound: Bound, place: Place, reason: str) -> None:
    if place in places(bound):
        raise ArgumentError(bound.option, bound.shown, f"{reason}: {place.name.lower()} is not possible here")


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check everything that was given, and fill in the rest.

    >>> read_options({"NAMESRV": "127.0.0.1:9876", "subscribe": "orders, returns"}).topics
    ('orders', 'returns')
    >>> read_options({"namesrv": "127.0.0.1:9876", "subscribe": "orders", "startingOffset": "earliest"})
    Traceback (most recent call last):
    ...
    evenq.errors.ArgumentError: startingOffset='earliest': there is no such option; did you mean startingOffsets?
    """
    values = read_table(OPTIONS, given, _ELSEWHERE)
    texts = {name.lower(): text for name, text in given.items()}
    for names, remedy in _ONE_OF:
        _at_most_one(names, texts, remedy)
    if not any(name.lower() in texts for name in _TOPICS):
        raise ArgumentError("subscribe", None, f"say what to read: give one of {', '.join(_TOPICS)}")
    _companions(texts)
    otherwise = Place.LATEST if values.pop("by_time_strategy") == "latest" else None
    starting = _bound(values, _STARTS, otherwise)
    ending = _bound(values, _ENDS, Place.LATEST)
    if "group" not in texts and any(bound and Place.GROUP in places(bound) for bound in (starting, ending)):
        raise ArgumentError("group", None, "group as a bound needs the option group: name the consumer group")
    if values["join"] and values["assigned"] is not None:
        raise ArgumentError("assign", texts["assign"], "with group.join the group divides the queues: give subscribe")
    least, most = values["min_offsets_per_trigger"], values["max_offsets_per_trigger"]
    if least is not None and most is not None and least > most:
        raise ArgumentError("minOffsetsPerTrigger", least, f"give at most maxOffsetsPerTrigger, which is {most}")
    values["property_columns"] = _free_names(values["property_columns"] or (), texts)
    connecting = Connecting.take(values, pull=values.pop("pull_timeout"))
    return ReadOptions(connecting=connecting, starting=starting, ending=ending, **values)


def _at_most_one(names: tuple[str, ...], texts: Mapping[str, str], remedy: str) -> None:
    there = [name for name in names if name.lower() in texts]
    if len(there) > 1:
        raise ArgumentError(there[1], texts[there[1].lower()], f"{remedy}, not {' and '.join(there)}")


def _companions(texts: Mapping[str, str]) -> None:
    """Options that mean nothing without another one."""
    for name, needed in _NEEDS.items():
        if name.lower() in texts and not any(other.lower() in texts for other in needed):
            raise ArgumentError(
                name, texts[name.lower()], f"this counts with {' or '.join(needed)} only: give that too"
            )


def _free_names(names: tuple[str, ...], texts: Mapping[str, str]) -> tuple[str, ...]:
    """The names of properties, none of which is that of another column. Spark does not tell case apart."""
    taken = {name.lower() for name in schema(include_properties=True).names}
    for name in names:
        if name.lower() in taken:
            raise ArgumentError(
                "propertyColumns", texts["propertycolumns"], f"there is another column {name}: use includeProperties"
            )
        taken.add(name.lower())
    return names


def _bound(values: dict[str, Any], options: Mapping[str, str], otherwise: Place | None) -> Bound | None:
    """The one bound of several ways to give it, with the name of the option that it was given by."""
    given = {name: value for name, field in options.items() if (value := values.pop(field)) is not None}
    for name, value in given.items():
        return Bound(name, value if name.endswith("ingOffsets") else AtTime(value, otherwise))
    return None


_TOPICS = ("subscribe", "subscribePattern", "assign")
_STARTS = {
    "startingOffsets": "starting_offsets",
    "startingTimestamp": "starting_time",
    "startingOffsetsByTimestamp": "starting_times",
}
_ENDS = {
    "endingOffsets": "ending_offsets",
    "endingTimestamp": "ending_time",
    "endingOffsetsByTimestamp": "ending_times",
}

_ONE_OF = (
    (_TOPICS, "say in one way what to read"),
    (tuple(_STARTS), "say in one way where to begin"),
    (tuple(_ENDS), "say in one way where to end"),
    (("tags", "sql"), "brokers filter by one of them"),
)
_NEEDS = {
    "group.join": ("group",),
    "strategy": ("group.join",),
    "startingOffsetsByTimestampStrategy": ("startingTimestamp", "startingOffsetsByTimestamp"),
    "maxTriggerDelay": ("minOffsetsPerTrigger",),
}

# Names that people bring from elsewhere.
_ELSEWHERE = {
    "path": "load() takes no path: name the topic with option subscribe",
    "kafka.bootstrap.servers": "RocketMQ's is namesrv, the name server's host:port",
    "kafka.group.id": "RocketMQ's is group",
    "groupidprefix": "RocketMQ's is group",
    "topic": "did you mean subscribe?",
    "includeheaders": "RocketMQ's headers are properties: did you mean includeProperties?",
}

OPTIONS = (
    *CONNECTION,
    Option("pullTimeout", "pull_timeout", texts.seconds, f"{Timeouts().pull:g}s", "to get messages"),
    Option("subscribe", "topics", texts.topics, None, "the topics to read, with commas between"),
    Option("subscribePattern", "pattern", texts.pattern, None, "all topics whose whole name this expression matches"),
    Option("assign", "assigned", texts.assigned, None, 'exactly these queues: {"topic": {"broker": [0, 1]}}'),
    Option(
        "startingOffsets",
        "starting_offsets",
        texts.offsets,
        None,
        "where to begin: earliest (a batch's default), latest (a stream's), group, or JSON by topic, broker and queue "
        "with -2 for earliest and -1 for latest",
    ),
    Option("startingTimestamp", "starting_time", texts.milliseconds, None, "begin at a time: milliseconds or ISO 8601"),
    Option("startingOffsetsByTimestamp", "starting_times", texts.times, None, "the same for each queue, JSON"),
    Option(
        "startingOffsetsByTimestampStrategy",
        "by_time_strategy",
        texts.one_of("error", "latest"),
        "error",
        "where a queue begins that has no message so late: nowhere, or with what comes",
    ),
    Option("endingOffsets", "ending_offsets", texts.offsets, None, "where a batch ends: latest (default), group, JSON"),
    Option("endingTimestamp", "ending_time", texts.milliseconds, None, "end a batch before that time"),
    Option("endingOffsetsByTimestamp", "ending_times", texts.times, None, "the same for each queue, JSON"),
    Option("tags", "tags", texts.tags, EVERYTHING, "only messages with these tags, such as paid || refunded"),
    Option("sql", "sql", texts.sql, None, "only messages whose properties meet this SQL92 condition"),
    Option("group", "group", texts.group, None, "the consumer group that shows the query's progress"),
    Option(
        "group.join", "join", texts.switch, "false", "be a member of the group and read only its share of the queues"
    ),
    Option("strategy", "strategy", texts.strategy, "AVG", "how the members of the group divide the queues"),
    Option("minPartitions", "min_partitions", texts.count, None, "make at least so many tasks of a batch"),
    Option(
        "maxRecordsPerPartition", "max_records_per_partition", texts.count, None, "at most so many offsets in a task"
    ),
    Option(
        "maxOffsetsPerTrigger", "max_offsets_per_trigger", texts.count, None, "read at most so many in a micro-batch"
    ),
    Option(
        "minOffsetsPerTrigger", "min_offsets_per_trigger", texts.count, None, "wait for so many before a micro-batch"
    ),
    Option("maxTriggerDelay", "max_trigger_delay", texts.seconds, "15m", "but no longer than that"),
    Option(
        "failOnDataLoss", "fail_on_data_loss", texts.switch, "true", "whether messages that are gone fail the query"
    ),
    Option("deduplicate", "deduplicate", texts.switch, "false", "leave out what a writing query sent again"),
    Option("includeProperties", "include_properties", texts.switch, "false", "whether there is a column properties"),
    Option(
        "propertyColumns",
        "property_columns",
        texts.names,
        None,
        "properties that have a text column of their own, with commas between: cheaper than all of them",
    ),
)
