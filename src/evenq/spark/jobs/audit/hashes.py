"""Grouping millions of hashes: by Spark, or by numpy where they are few enough to come to the driver.

Where nearly every hash is another one, grouping means to move all of them. Up to some millions it is quicker to bring
them to the driver in columns than to shuffle them, and beyond that Spark does it on as many machines as there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FEW", "Shape", "descents", "shapes", "twice"]

# Rows that may come to the driver, in 8 to 24 bytes each.
FEW = 20_000_000
# So many rows tell whether keys come again.
SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Keys that are alike: of topic number ``topic``, with so many ``messages``, with a sharding key or not, in one
    queue or not. ``keys`` is how many they are; ``ids`` has their hashes if they have enough messages."""

    topic: int
    messages: int
    sharded: bool
    together: bool
    keys: int
    ids: Sequence[int]


def twice(hashed: DataFrame, rows: int, most: int, few: int = FEW) -> list[int]:
    """The values of the one column that come more than once, ``most`` of them at most."""
    if rows <= few:
        numbers = np.sort(hashed.toArrow().column(0).to_numpy())
        found: list[int] = np.unique(numbers[1:][numbers[1:] == numbers[:-1]])[:most].tolist()
        return found
    # divided first: counting before would find next to nothing to add up
    name = hashed.columns[0]
    counted = hashed.repartition(name).groupBy(name).count().where("count > 1")
    return [row[0] for row in counted.select(name).limit(most).collect()]


def shapes(keyed: DataFrame, rows: int, floors: Sequence[int], few: int = FEW) -> list[Shape]:
    """Of columns ``t`` (topic number, from 1), ``id`` (hash of topic and key), ``q`` (hash of the queue) and ``s``
    (whether it has a sharding key). ``floors`` are the messages from which on the hash of a key is given, by topic."""
    if rows <= few and _mostly_new(keyed):
        return _here(keyed.toArrow(), floors)
    by_key = keyed.groupBy("id").agg(
        *_sql("min(t) as t", "count(*) as n", "min(q) as low", "max(q) as high", "bool_or(s) as s")
    )
    enough = f"n >= array({', '.join(map(str, floors))})[t - 1]"
    found = (
        by_key.selectExpr("*", "low = high as one")
        .groupBy("t", "n", "s", "one")
        .agg(*_sql("count(*) as many", f"collect_list(id) filter (where {enough}) as ids"))
    )
    return [Shape(row.t, row.n, row.s, row.one, row.many, row.ids) for row in found.collect()]


def descents(lined: DataFrame, rows: int, most: int, few: int = FEW) -> dict[tuple[int, int], int]:
    """Of columns ``line``, ``offset`` and ``born``: where, along the offsets of a line, born goes back, and from what.

    ``most`` places at most.
    """
    if rows <= few:
        table = lined.toArrow()
        line, offset, born = (table[name].to_numpy() for name in ("line", "offset", "born"))
        order = np.lexsort((offset, line))
        line, offset, born = line[order], offset[order], born[order]
        back = np.flatnonzero((line[1:] == line[:-1]) & (born[1:] < born[:-1]))[:most]
        places = zip(line[back + 1].tolist(), offset[back + 1].tolist(), strict=True)
        return dict(zip(places, born[back].tolist(), strict=True))
    from pyspark.sql import Window
    from pyspark.sql.functions import lag

    front = lag("born").over(Window.partitionBy("line").orderBy("offset"))
    found = lined.withColumn("front", front).where("born < front").limit(most).collect()
    return {(row.line, row.offset): row.front for row in found}


def _mostly_new(keyed: DataFrame) -> bool:
    ids = keyed.select("id").limit(SAMPLE).toArrow().column(0)
    return bool(pc.count_distinct(ids).as_py() * 2 > len(ids))


def _here(table: pa.Table, floors: Sequence[int]) -> list[Shape]:
    """Sorted by hash, the rows of a key stand together; three times as fast as a table of hashes."""
    topic, ids, queue, sharded = (table[name].to_numpy() for name in ("t", "id", "q", "s"))
    if not len(ids):
        return []
    order = np.argsort(ids)
    ids, queue, sharded = ids[order], queue[order], sharded[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    messages = np.diff(starts, append=len(ids))
    topic, ids = topic[order[starts]].astype(np.int64), ids[starts]
    together = np.minimum.reduceat(queue, starts) == np.maximum.reduceat(queue, starts)
    kind = ((messages * (len(floors) + 1) + topic) * 2 + np.logical_or.reduceat(sharded, starts)) * 2 + together
    large = np.flatnonzero(messages >= np.array(floors)[topic - 1])
    named: dict[int, list[int]] = {}
    for each, number in zip(kind[large].tolist(), ids[large].tolist(), strict=True):
        named.setdefault(each, []).append(number)
    found = []
    for each, many in zip(*(part.tolist() for part in np.unique(kind, return_counts=True)), strict=True):
        load, number = divmod(each // 4, len(floors) + 1)
        found.append(Shape(number, load, bool(each & 2), bool(each & 1), many, named.get(each, [])))
    return found


def _sql(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]
