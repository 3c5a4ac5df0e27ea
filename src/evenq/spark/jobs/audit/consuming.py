"""What the trace tells of consumers: when they got which message, and so lag, load and queues that changed hands.

A consumer's record has the unique key of a message; the facts of the topic say where that is and when it was stored. Of
a message that a group got more than once, the first time counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evenq.model import MessageQueue
from evenq.spark.jobs.audit.counting import LISTED, SLOTS, _sql, _text, slot_width
from evenq.spark.jobs.audit.facts import bucket
from evenq.spark.jobs.audit.findings import Consumer, GroupAudit, Holding, LagPoint, LagSample, Move
from evenq.spark.jobs.audit.measures import percentiles, skew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["consumed", "group_audit", "waiting"]

_QUEUE = ("topic", "broker", "queue_id")


def consumed(facts: DataFrame, trace: DataFrame) -> DataFrame:
    """One row for each message and group that got it: where it is, when the group got it first, who did, how often."""
    first = (
        trace.where("kind = 'before' and consumers is not null")
        .groupBy("consumers", "unique_key")
        .agg(*_sql("min(struct(at, consumer)) as got", "count(*) as times"))
        .selectExpr("consumers", "unique_key", "got.at as at", "got.consumer as consumer", "times")
    )
    return first.join(facts.select(*_QUEUE, "offset", "stored", "born", "size", "waited", "unique_key"), "unique_key")


def group_audit(
    group: str,
    samples: Sequence[LagSample],
    rows: DataFrame | None,
    facts: DataFrame | None,
    trace: DataFrame | None,
) -> GroupAudit:
    """One group. ``rows`` are what :func:`consumed` gives, kept somewhere fast; None where nothing is traced."""
    found = GroupAudit(group=group, samples=tuple(samples))
    if rows is None or facts is None or trace is None:
        return found
    own = rows.where(f"consumers = {_text(group)}")
    (ends,) = own.selectExpr("min(stored)", "max(greatest(at, stored))", "coalesce(sum(times - 1), 0)").collect()
    if ends[0] is None:
        return found
    width = slot_width(ends[0], ends[1])
    moves = _moves(group, own)
    consumers = _consumers(group, own)
    return replace(
        found,
        lag=_lag(group, own, _never_consumed(facts, found.latest), width),
        slot_ms=width,
        consumers=consumers,
        consumer_skew=skew([consumer.messages for consumer in consumers]),
        holdings=_holdings(group, own, width),
        moves=tuple(moves[:LISTED]),
        moves_count=len(moves),
        again=ends[2],
        consumed_after=percentiles(_counts(own, "at - stored")),
        whole_way=percentiles(_counts(own.where("not waited"), "at - born")),
        handling=percentiles(_counts(trace.where(f"kind = 'after' and consumers = {_text(group)}"), "took")),
    )


def _counts(rows: DataFrame, milliseconds: str) -> dict[int, int]:
    found = rows.selectExpr(f"{bucket(milliseconds)} as bucket").groupBy("bucket").count().collect()
    return {row.bucket: row["count"] for row in found if row.bucket is not None}


def _consumers(group: str, own: DataFrame) -> tuple[Consumer, ...]:
    rows = (
        own.groupBy("consumer")
        .agg(*_sql("count(*) as n", "sum(size) as bytes", "count(distinct topic, broker, queue_id) as queues"))
        .collect()
    )
    return tuple(sorted((Consumer(group, *row) for row in rows), key=lambda one: (-one.messages, one.consumer)))


def _holdings(group: str, own: DataFrame, width: int) -> tuple[Holding, ...]:
    rows = (
        own.selectExpr(*_QUEUE, f"floor(at / {width}) * {width} as slot", "consumer")
        .groupBy(*_QUEUE, "slot", "consumer")
        .count()
        .collect()
    )
    most: dict[tuple[str, str, int, int], tuple[int, str]] = {}
    for topic, broker, queue_id, slot, consumer, many in rows:
        place = (topic, broker, queue_id, slot)
        most[place] = max(most.get(place, (0, "")), (many, consumer))
    return tuple(Holding(group, *place, consumer, many) for place, (many, consumer) in sorted(most.items()))


def _moves(group: str, own: DataFrame) -> list[Move]:
    """Along the offsets of a queue, not along time: two consumers that are busy side by side do not count as many."""
    from pyspark.sql import Window
    from pyspark.sql.functions import lag

    line = Window.partitionBy(*_QUEUE).orderBy("offset")
    rows = own.withColumn("before", lag("consumer").over(line)).where("consumer != before")
    found = rows.select(*_QUEUE, "offset", "at", "before", "consumer").limit(100 * LISTED).collect()
    return sorted((Move(group, *row) for row in found), key=lambda move: (move.at, move.topic, move.broker))


def _never_consumed(facts: DataFrame, latest: Iterable[LagSample]) -> DataFrame | None:
    """The messages behind the offsets that a group has committed."""
    ends = [(one.topic, one.broker, one.queue_id, one.committed) for one in latest if one.lag]
    if not ends:
        return None
    from pyspark.sql.functions import broadcast

    table = facts.sparkSession.createDataFrame(ends, "topic string, broker string, queue_id int, committed long")
    return facts.join(broadcast(table), list(_QUEUE)).where("offset >= committed")


def _lag(group: str, own: DataFrame, left: DataFrame | None, width: int) -> tuple[LagPoint, ...]:
    # a message that is behind the committed offset may have been consumed, and is in both then
    came = own.selectExpr("stored", "unique_key")
    if left is not None:
        came = came.union(left.select("stored", "unique_key")).groupBy("unique_key").agg(*_sql("min(stored) as stored"))
    return waiting(group, _by_slot(came, "stored", width), _by_slot(own, "greatest(at, stored)", width), width)


def _by_slot(rows: DataFrame, at: str, width: int) -> dict[int, int]:
    found = rows.selectExpr(f"floor({at} / {width}) as slot").groupBy("slot").count().collect()
    return {row.slot: row["count"] for row in found}


def waiting(group: str, stored: Mapping[int, int], got: Mapping[int, int], width: int) -> tuple[LagPoint, ...]:
    """Messages that came less those that were consumed, at the end of each slot.

    >>> [(point.at, point.waiting) for point in waiting("g", {0: 5, 2: 1}, {0: 2, 1: 3, 3: 1}, 10)]
    [(10, 3), (20, 0), (30, 1), (40, 0)]
    """
    slots = sorted({*stored, *got})
    if not slots:
        return ()
    # messages that nobody consumed may be of long ago: then there is a point where something happens only
    line = range(slots[0], slots[-1] + 1) if slots[-1] - slots[0] <= 2 * SLOTS else slots
    change = Counter(stored)
    change.subtract(got)
    points, left = [], 0
    for slot in line:
        left += change[slot]
        points.append(LagPoint(group, (slot + 1) * width, left))
    return tuple(points)


def groups_in(trace: DataFrame) -> tuple[str, ...]:
    """The groups that have records in the trace."""
    rows = trace.where("consumers is not null").select("consumers").distinct().limit(LISTED).collect()
    return tuple(sorted(row.consumers for row in rows))


def samples_of(
    at: int, group: str, committed: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> list[LagSample]:
    """How far the group is in the queues that it has an offset in."""
    return [
        LagSample(at, group, queue.topic, queue.broker, queue.queue_id, committed[queue], end)
        for queue, end in sorted(ends.items())
        if queue in committed
    ]
