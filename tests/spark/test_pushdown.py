"""Filters as restrictions: what they exclude is what Spark would exclude, and what is not exact is told to Spark."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from evenq.client.read.ranges import QueueRange
from evenq.model import MessageQueue
from evenq.spark.pushdown import SLACK_MS, Restriction, Span, push

QUEUE = MessageQueue("t", "b", 2)
COMPARISONS: dict[Callable[..., Filter], Callable[[float, float], bool]] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


def pushed(*filters: Filter) -> Restriction:
    found, left = push(filters, tags_too=True)
    assert left == []
    return found


def left(*filters: Filter) -> list[Filter]:
    return push(filters, tags_too=True)[1]


@given(st.lists(st.tuples(st.sampled_from(list(COMPARISONS)), st.integers(-5, 25) | st.floats(-5, 25)), max_size=4))
def test_offsets_are_kept_to_the_letter(wanted: list[tuple[Callable[..., Filter], float]]) -> None:
    found = pushed(*(kind(("offset",), value) for kind, value in wanted))
    part = found.offsets.cut(QueueRange(QUEUE, 0, 20))
    assert list(range(part.start, part.stop)) == [
        offset for offset in range(20) if all(COMPARISONS[kind](offset, value) for kind, value in wanted)
    ]


def test_a_list_of_offsets_is_a_span_for_spark_to_look_at() -> None:
    some = In(("offset",), (3, 9))
    found, rest = push([some], tags_too=True)
    assert (found.offsets, rest) == (Span(3, 10), [some])


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("wanted", "span"),
    [
        (GreaterThanOrEqual(("timestamp",), NOON), Span(NOON_MS - SLACK_MS, None)),
        (LessThan(("timestamp",), NOON), Span(None, NOON_MS + SLACK_MS)),
        (EqualTo(("timestamp",), NOON), Span(NOON_MS - SLACK_MS, NOON_MS + 1 + SLACK_MS)),
        (LessThan(("timestamp",), NOON.astimezone(timezone(timedelta(hours=5)))), Span(None, NOON_MS + SLACK_MS)),
        (LessThan(("timestamp",), NOON.replace(tzinfo=None)), Span()),
        (LessThan(("born_timestamp",), NOON), Span()),
        (Not(LessThan(("timestamp",), NOON)), Span()),
    ],
)
def test_times_are_narrowed_with_some_slack_and_looked_at_again(wanted: Filter, span: Span) -> None:
    assert push([wanted], tags_too=True) == (Restriction(times=span), [wanted])


def test_queues_are_chosen() -> None:
    found = pushed(EqualTo(("topic",), "t"), In(("queue_id",), (1, 2)), EqualNullSafe(("broker",), "b"))
    assert found.admits(QUEUE)
    assert not found.admits(MessageQueue("t", "b", 3))
    assert not found.admits(MessageQueue("u", "b", 2))
    assert not pushed(EqualTo(("queue_id",), 1), EqualTo(("queue_id",), 2)).admits(QUEUE)


def test_tags_go_to_the_broker_where_they_can() -> None:
    assert pushed(In(("tags",), ("a", "b")), EqualTo(("tags",), "b")).tags == frozenset("b")
    for odd in ("a || b", " a", "*", ""):
        assert left(EqualTo(("tags",), odd)) == [EqualTo(("tags",), odd)]
    assert push([EqualTo(("tags",), "a")], tags_too=False) == (Restriction(), [EqualTo(("tags",), "a")])


def test_the_rest_is_sparks() -> None:
    for wanted in (
        StringStartsWith(("topic",), "t"),
        IsNull(("tags",)),
        IsNotNull(("tags",)),
        In(("tags",), ("a", None)),
        EqualTo(("value",), b"x"),
        EqualTo(("properties", "offset"), 1),
        GreaterThan(("queue_id",), 1),
    ):
        assert push([wanted], tags_too=True) == (Restriction(), [wanted])
    assert left(IsNotNull(("offset",))) == []
