"""What Spark counts in frames of facts, next to what plain Python counts in the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from evenq.model import MessageQueue
from evenq.spark.jobs.audit import hashes
from evenq.spark.jobs.audit.facts import bucket, with_queues
from evenq.spark.jobs.audit.findings import Kind, Order, TopicAudit
from evenq.spark.jobs.audit.measures import bucket_of
from evenq.spark.jobs.audit.measuring import audit_facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FACTS = (
    "topic string, broker string, queue_id int, offset long, stored long, born long, size int, key string, "
    "sharded boolean, waited boolean, unique_key string"
)
QUEUES = [MessageQueue("orders", broker, number) for broker in ("a", "b") for number in range(2)]
Row = tuple[str, str, int, int, int, int, int, str | None, bool, bool, str]


def rows(seed: int, messages: int = 600, keys: int = 40) -> list[Row]:
    """Messages that go to the queue of their key, most of the time, and are born in order, most of the time."""
    luck = random.Random(seed)
    ends = Counter[MessageQueue]()
    found: list[Row] = []
    for number in range(messages):
        key = f"k{luck.randrange(keys)}"
        queue = QUEUES[sum(key.encode()) % 4] if luck.random() < 0.999 else luck.choice(QUEUES)
        born = 10 * number - (500 if luck.random() < 0.05 else 0)
        unique = f"u{number}" if luck.random() < 0.99 else f"u{luck.randrange(number + 1)}"
        place = (queue.topic, queue.broker, queue.queue_id)
        found.append((*place, ends[queue], 10 * number + 3, born, 50, key, False, False, unique))
        ends[queue] += 1
    return found


def frame(spark: SparkSession, facts: Iterable[Row]) -> DataFrame:
    plain = spark.createDataFrame(list(facts), FACTS)
    return with_queues(plain.selectExpr("xxhash64(topic, broker, queue_id) as place", *plain.columns[3:]), QUEUES)


def look(spark: SparkSession, facts: list[Row], *, lost: frozenset[int] = frozenset()) -> TopicAudit:
    ends = Counter(MessageQueue(*row[:3]) for row in facts)
    planned = {queue: [(0, ends[queue])] for queue in QUEUES}
    kept = [row for number, row in enumerate(facts) if number not in lost]
    (found,) = audit_facts(frame(spark, kept), planned, ordered=True)
    return found


def copies_in(facts: list[Row]) -> list[Row]:
    """All but the first of each unique key; rows are in the order in which they were stored."""
    seen: set[str] = set()
    found = []
    for row in facts:
        if row[10] in seen:
            found.append(row)
        seen.add(row[10])
    return found


@pytest.mark.parametrize("few", [0, hashes.FEW])
def test_spark_counts_what_python_counts(spark: SparkSession, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # in Spark, and in the driver
    monkeypatch.setattr(hashes.twice, "__defaults__", (few,))
    monkeypatch.setattr(hashes.shapes, "__defaults__", (few,))
    monkeypatch.setattr(hashes.descents, "__defaults__", (few,))
    monkeypatch.setattr(hashes, "_mostly_new", lambda keyed: True)
    facts = rows(seed=few % 7)
    lost = frozenset({5, 6, 77})
    found = look(spark, facts, lost=lost)

    kept = [row for number, row in enumerate(facts) if number not in lost]
    copies = copies_in(kept)
    once = [row for row in kept if row not in copies]
    assert {(one.broker, one.queue_id, one.offset) for one in found.copies} == {row[1:4] for row in copies}
    assert sum(queue.messages for queue in found.queues) == found.messages == len(kept)
    by_key = Counter(row[7] for row in kept)
    assert {key.key: key.messages for key in found.keys} == by_key
    assert found.key_skew.parts == len(by_key)
    late = []
    front: dict[tuple[object, ...], int] = {}
    for row in once:
        line = (*row[:3], row[7])
        if row[5] < front.get(line, row[5]):
            late.append(row[1:4])
        front[line] = row[5]
    assert late
    assert [(one.broker, one.queue_id, one.offset) for one in found.late] == sorted(late)
    places: dict[str | None, set[tuple[object, ...]]] = {}
    for row in once:
        places.setdefault(row[7], set()).add(row[:3])
    assert {one.key: one.queues for one in found.spread} == {
        key: len(where) for key, where in places.items() if len(where) > 1
    }
    missing = {(gap.broker, gap.queue_id, offset) for gap in found.gaps for offset in range(gap.first, gap.end)}
    assert missing == {facts[number][1:4] for number in lost}
    after = Counter(bucket_of(row[4] - row[5]) for row in kept)
    assert found.stored_after is not None
    assert found.stored_after.count == sum(after.values())


def test_keys_of_a_topic_that_is_in_order_by_its_places(spark: SparkSession) -> None:
    facts = [row for row in rows(seed=3) if QUEUES[sum((row[7] or "").encode()) % 4] == MessageQueue(*row[:3])]
    ends = Counter(MessageQueue(*row[:3]) for row in facts)
    planned = {queue: [(0, 1 + max(row[3] for row in facts if MessageQueue(*row[:3]) == queue))] for queue in ends}
    (found,) = audit_facts(frame(spark, facts), planned)
    assert found.order is Order.KEYED
    assert Kind.SPREAD not in {finding.kind for finding in found.findings}


def test_buckets_are_the_same_in_sql(spark: SparkSession) -> None:
    luck = random.Random(1)
    values = [-5, 0, 1, 63, 64, 65, 10**9, *(luck.randrange(10 ** luck.randrange(1, 9)) for _ in range(300))]
    frame = spark.createDataFrame([(value,) for value in values], "ms long").selectExpr(
        "ms", f"{bucket('ms')} as bucket"
    )
    assert {(row.ms, row.bucket) for row in frame.collect()} == {(value, bucket_of(value)) for value in values}
