"""Filters of a query as smaller ranges, fewer queues and tags for the broker. Pure.

What a filter excludes here is never read. A filter that is kept to the letter is done with; the others are told to
Spark, which looks again at each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil, floor
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from evenq.client.read.ranges import QueueRange
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING

__all__ = ["Restriction", "Span", "push"]

# Brokers find times by halving, which needs them in order. A clock that was set back a little must cost nothing.
SLACK_MS = 1000

_ALWAYS_THERE = {"topic", "broker", "queue_id", "offset", "timestamp", "born_timestamp", "value", "msg_id"}


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``low`` up to, not including, ``high``; None is no limit."""

    low: int | None = None
    high: int | None = None

    def narrow(self, other: Span) -> Span:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Span(max(lows, default=None), min(highs, default=None))

    def cut(self, part: QueueRange) -> QueueRange:
        start = part.start if self.low is None else max(part.start, self.low)
        stop = part.stop if self.high is None else min(part.stop, self.high)
        return QueueRange(part.queue, start, max(start, stop))


# A set of allowed values; None is all.
Choice = frozenset[Any] | None


@dataclass(frozen=True, slots=True)
class Restriction:
    """What a query needs of the messages that its options choose."""

    queues: dict[str, frozenset[Any]] = field(default_factory=dict)
    offsets: Span = Span()
    # milliseconds, with some slack
    times: Span = Span()
    tags: Choice = None

    def admits(self, queue: MessageQueue) -> bool:
        return all(getattr(queue, name) in allowed for name, allowed in self.queues.items())


def push(filters: Iterable[Filter], *, tags_too: bool) -> tuple[Restriction, list[Filter]]:
    """What all filters together ask for, and those that Spark must still look at.

    ``tags_too``: whether the broker may be given tags.

    >>> push([EqualTo(("queue_id",), 3), GreaterThan(("offset",), 9)], tags_too=True)[0].offsets
    Span(low=10, high=None)
    """
    found = Restriction()
    left: list[Filter] = []
    for wanted in filters:
        restriction, exact = _one(found, wanted, tags_too=tags_too)
        found = restriction
        if not exact:
            left.append(wanted)
    return found, left


def _one(found: Restriction, wanted: Filter, *, tags_too: bool) -> tuple[Restriction, bool]:
    """The restriction with one filter more, and whether that says all that the filter does."""
    column = getattr(wanted, "attribute", ("", ""))
    name = column[0] if len(column) == 1 else ""
    if isinstance(wanted, IsNotNull):
        return found, name in _ALWAYS_THERE
    if name in MessageQueue.__struct_fields__:
        return _choose_queues(found, name, wanted)
    if name == "tags" and tags_too:
        return _choose_tags(found, wanted)
    if name == "offset" and (span := _span(wanted, lambda value: value)) is not None:
        return replace(found, offsets=found.offsets.narrow(span)), not isinstance(wanted, In)
    if name == "timestamp" and (span := _span(wanted, _milliseconds)) is not None:
        low = None if span.low is None else span.low - SLACK_MS
        high = None if span.high is None else span.high + SLACK_MS
        return replace(found, times=found.times.narrow(Span(low, high))), False
    return found, False


def _values(wanted: Filter) -> frozenset[Any] | None:
    """The values that a filter allows, if it names them."""
    match wanted:
        case EqualTo(_, value) | EqualNullSafe(_, value) if value is not None:
            return frozenset([value])
        case In(_, values) if None not in values:
            return frozenset(values)
        case _:
            return None


def _choose_queues(found: Restriction, name: str, wanted: Filter) -> tuple[Restriction, bool]:
    allowed = _values(wanted)
    if allowed is None:
        return found, False
    both = found.queues.get(name, allowed) & allowed
    return replace(found, queues={**found.queues, name: both}), True


def _choose_tags(found: Restriction, wanted: Filter) -> tuple[Restriction, bool]:
    tags = _values(wanted)
    if tags is None or not all(map(_is_plain, tags)):
        return found, False
    return replace(found, tags=tags if found.tags is None else found.tags & tags), True


def _is_plain(tag: str) -> bool:
    """Whether a tag means itself in an expression."""
    return bool(tag) and tag == tag.strip() and "||" not in tag and tag != EVERYTHING


def _span(wanted: Filter, number: Callable[[Any], float | None]) -> Span | None:
    """The whole numbers that a filter allows; ``number`` reads its values and may give None for one it cannot."""
    match wanted:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            values = [value]
        case In(_, several):
            values = list(several)
        case GreaterThan(_, value) | GreaterThanOrEqual(_, value) | LessThan(_, value) | LessThanOrEqual(_, value):
            values = [value]
        case _:
            return None
    read = [number(value) for value in values if value is not None]
    numbers = [value for value in read if value is not None]
    if len(numbers) != len(values) or not numbers:
        return None
    match wanted:
        case GreaterThan():
            return Span(low=floor(numbers[0]) + 1)
        case GreaterThanOrEqual():
            return Span(low=ceil(numbers[0]))
        case LessThan():
            return Span(high=ceil(numbers[0]))
        case LessThanOrEqual():
            return Span(high=floor(numbers[0]) + 1)
        case _:
            return Span(ceil(min(numbers)), floor(max(numbers)) + 1)


def _milliseconds(value: object) -> float | None:
    """A time as brokers count it. One without a zone cannot be compared with theirs."""
    return value.timestamp() * 1000 if isinstance(value, datetime) and value.tzinfo is not None else None
