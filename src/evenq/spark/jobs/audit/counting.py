"""What Spark counts in the facts of messages. Few passes, each over the columns that it needs; no Python per message.

Keys and unique keys are grouped by a hash of 64 bits, which is several times as fast as by texts. What is found so is
looked at again by its text, so two keys that have one hash are no false alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenq.spark.jobs.audit.facts import bucket
from evenq.spark.jobs.audit.findings import Copy, KeyLoad, Late, Slot, Spread
from evenq.spark.jobs.audit.hashes import Shape, descents, shapes, twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "LISTED",
    "KeyCounts",
    "Traffic",
    "copies",
    "keys",
    "late",
    "offsets_there",
    "slot_width",
    "spread",
    "traffic",
]

# So many of a kind are listed by name; all are counted.
LISTED = 1000
# So many are brought to the driver at most: what there is more of is only counted up to here.
MOST = 100_000
# Slots of time in a picture, at most.
SLOTS = 150

_WIDTHS = [
    *(step * unit for unit in (100, 1000, 10_000) for step in (1, 2, 5)),
    *(60_000 * minutes for minutes in (1, 2, 5, 10, 30, 60, 120, 360, 720, 1440, 10_080, 43_200)),
]
PLACE = ("topic", "broker", "queue_id", "offset")


def slot_width(first: int, last: int, most: int = SLOTS) -> int:
    """A round number of milliseconds that divides the time into at most so many slots.

    >>> slot_width(0, 3_600_000), slot_width(5, 5)
    (50000, 100)
    """
    return next((width for width in _WIDTHS if (last - first) // width < most), _WIDTHS[-1])


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages by queue and time, and how long they took to be stored: counts by bucket, by topic."""

    slots: tuple[Slot, ...]
    slot_ms: int
    stored_after: dict[str, dict[int, int]]


def traffic(facts: DataFrame) -> Traffic:
    (ends,) = facts.selectExpr("min(stored)", "max(stored)").collect()
    width = slot_width(ends[0] or 0, ends[1] or 0)
    rows = (
        facts.selectExpr(
            "topic",
            "broker",
            "queue_id",
            f"floor(stored / {width}) as slot",
            f"if(waited, -1, {bucket('stored - born')}) as after",
            "size",
        )
        .groupBy("topic", "broker", "queue_id", "slot", "after")
        .agg(*_sql("count(*)", "sum(size)"))
        .collect()
    )
    slots: dict[tuple[str, str, int, int], list[int]] = {}
    after: dict[str, dict[int, int]] = {}
    for topic, broker, queue_id, slot, took, messages, size in rows:
        found = slots.setdefault((topic, broker, queue_id, slot * width), [0, 0])
        found[0] += messages
        found[1] += size
        if took >= 0:
            of = after.setdefault(topic, {})
            of[took] = of.get(took, 0) + messages
    return Traffic(tuple(Slot(*place, *counts) for place, counts in sorted(slots.items())), width, after)


# Duplicates


def copies(facts: DataFrame, messages: int) -> list[Copy]:
    """Messages under a unique key that an earlier one has, in order; the one that was stored first is no copy."""
    hashed = facts.where("unique_key is not null").selectExpr("xxhash64(topic, unique_key) as id")
    ids = twice(hashed, messages, MOST)
    if not ids:
        return []
    rows = _chosen(facts, "xxhash64(topic, unique_key)", ids).select(*PLACE, "stored", "unique_key", "key").collect()
    same: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        same.setdefault((row.topic, row.unique_key), []).append(row)
    found = []
    for (topic, unique_key), each in sorted(same.items()):
        first, *others = sorted(each, key=lambda row: (row.stored, row.broker, row.queue_id, row.offset))
        found += [
            Copy(
                topic,
                unique_key,
                row.key,
                row.broker,
                row.queue_id,
                row.offset,
                row.stored,
                f"{first.broker}:{first.queue_id}:{first.offset}",
            )
            for row in others
        ]
    return found


def without(facts: DataFrame, found: Sequence[Copy]) -> DataFrame:
    """The facts without copies."""
    if not found:
        return facts
    from pyspark.sql.functions import broadcast

    places = [(copy.topic, copy.broker, copy.queue_id, copy.offset) for copy in found]
    rows = facts.sparkSession.createDataFrame(places, "topic string, broker string, queue_id int, offset long")
    return facts.join(broadcast(rows), list(PLACE), "left_anti")


# Keys


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The keys of one topic: how many keys have how many messages, and those with the most.

    ``sharded`` keys have a sharding key, ``apart`` of them in several queues. Of those that have none and come
    ``again``, so many keep ``together``.
    """

    loads: dict[int, int]
    largest: tuple[KeyLoad, ...]
    sharded: int
    apart: int
    again: int
    together: int


def keys(facts: DataFrame, messages: Mapping[str, int]) -> dict[str, KeyCounts]:
    """By topic. ``messages`` is how many each topic has, about."""
    topics = sorted(messages)
    if not topics:
        return {}
    # a key that has the n-th part of all messages is one of n at most
    floors = [max(1, messages[topic] // (10 * LISTED)) for topic in topics]
    number = f"array_position(array({', '.join(map(_text, topics))}), topic)" if len(topics) > 1 else "1"
    keyed = facts.where("key is not null").selectExpr(
        f"cast({number} as int) as t", "xxhash64(topic, key) as id", "place as q", "sharded as s"
    )
    found = shapes(keyed, sum(messages.values()), floors)
    named = _named(facts, _largest(found))
    return {
        topic: _counts([shape for shape in found if shape.topic == number], named.get(topic, []))
        for number, topic in enumerate(topics, start=1)
    }


def _largest(found: Iterable[Shape]) -> list[int]:
    """The hashes of the keys with the most messages, so many of each topic."""
    ids: dict[int, list[int]] = {}
    for shape in sorted(found, key=lambda shape: -shape.messages):
        ids.setdefault(shape.topic, []).extend(shape.ids)
    return sorted({number for numbers in ids.values() for number in numbers[:LISTED]})


def _named(facts: DataFrame, wanted: Sequence[int]) -> dict[str, list[KeyLoad]]:
    """The keys of these hashes by name, with where their messages are; the largest first."""
    if not wanted:
        return {}
    rows = (
        _chosen(facts.where("key is not null"), "xxhash64(topic, key)", wanted)
        .groupBy("topic", "key", "broker", "queue_id")
        .agg(*_sql("count(*) as n", "sum(size) as bytes"))
        .collect()
    )
    found: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        found.setdefault((row.topic, row.key), []).append(row)
    named: dict[str, list[KeyLoad]] = {}
    for (topic, key), places in found.items():
        queues = sorted(
            ((f"{row.broker}:{row.queue_id}", row.n) for row in places), key=lambda place: (-place[1], place)
        )
        load = KeyLoad(topic, key, sum(row.n for row in places), sum(row.bytes for row in places), tuple(queues))
        named.setdefault(topic, []).append(load)
    return {topic: sorted(loads, key=lambda load: (-load.messages, load.key)) for topic, loads in named.items()}


def _counts(own: Sequence[Shape], named: Sequence[KeyLoad]) -> KeyCounts:
    loads: dict[int, int] = {}
    for shape in own:
        loads[shape.messages] = loads.get(shape.messages, 0) + shape.keys
    again = [shape for shape in own if shape.messages > 1 and not shape.sharded]
    return KeyCounts(
        loads,
        tuple(named[:LISTED]),
        sum(shape.keys for shape in own if shape.sharded),
        sum(shape.keys for shape in own if shape.sharded and not shape.together),
        sum(shape.keys for shape in again),
        sum(shape.keys for shape in again if shape.together),
    )


# Order


def late(facts: DataFrame, ordered: Sequence[str], messages: int) -> list[Late]:
    """Messages that were born before the one of the same key in front of them; of ``ordered`` topics with any key, of
    others with a sharding key only."""
    places = "xxhash64(place, key)"
    lined = _to_be_ordered(facts, ordered).where("not waited").selectExpr(f"{places} as line", "offset", "born")
    found = descents(lined, messages, MOST)
    if not found:
        return []
    rows = (
        _chosen(facts.where("key is not null"), places, sorted({line for line, _ in found}))
        .selectExpr(*PLACE, "key", "born", f"{places} as line")
        .collect()
    )
    return sorted(
        (
            Late(row.topic, row.key, row.broker, row.queue_id, row.offset, row.born, found[row.line, row.offset])
            for row in rows
            if (row.line, row.offset) in found
        ),
        key=lambda one: (one.topic, one.broker, one.queue_id, one.offset),
    )


def spread(facts: DataFrame, ordered: Sequence[str]) -> list[Spread]:
    """Keys that are to be in order and have messages in several queues."""
    by_key = (
        _to_be_ordered(facts, ordered)
        .selectExpr("xxhash64(topic, key) as id", "place as q")
        .groupBy("id")
        .agg(*_sql("min(q) as low", "max(q) as high"))
    )
    found = [row.id for row in by_key.where("low < high").select("id").limit(MOST).collect()]
    if not found:
        return []
    rows = (
        _chosen(_to_be_ordered(facts, ordered), "xxhash64(topic, key)", found)
        .groupBy("topic", "key")
        .agg(*_sql("count(*) as n", "count(distinct broker, queue_id) as queues"))
        .where("queues > 1")
        .collect()
    )
    return sorted((Spread(*row) for row in rows), key=lambda one: (one.topic, -one.messages, one.key))


def _to_be_ordered(facts: DataFrame, ordered: Sequence[str]) -> DataFrame:
    named = f" or topic in ({', '.join(map(_text, ordered))})" if ordered else ""
    return facts.where(f"key is not null and (sharded{named})")


# Gaps


def offsets_there(
    facts: DataFrame, topic: str, broker: str, queue_id: int, block: int, blocks: Callable[[dict[int, int]], list[int]]
) -> tuple[list[int], list[int]]:
    """The blocks of a queue that ``blocks`` chooses by their counts, and the offsets that there are in them."""
    queue = facts.where(f"topic = {_text(topic)} and broker = {_text(broker)} and queue_id = {queue_id}")
    counted = queue.groupBy(_column(f"offset div {block}").alias("block")).count().collect()
    short = blocks({row.block: row["count"] for row in counted})
    if not short:
        return [], []
    return short, [row.offset for row in _chosen(queue, f"offset div {block}", short).select("offset").collect()]


# SQL


def _chosen(facts: DataFrame, expression: str, values: Sequence[int]) -> DataFrame:
    """The rows whose expression has one of these values."""
    from pyspark.sql.functions import broadcast, expr

    wanted = facts.sparkSession.createDataFrame([(value,) for value in values], "wanted long")
    return facts.join(broadcast(wanted), expr(f"{expression} = wanted"), "left_semi")


def _sql(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]


def _column(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _text(value: str) -> str:
    """A text in SQL.

    >>> _text("it's")
    "'it\\\\'s'"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
