"""What the trace tells of consumers: records as RocketMQ's Java client writes them, and those that it did write."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

import evenq
from evenq.client.produce.trace import TRACE_TOPIC
from evenq.model import Begin, Message, MessageQueue
from evenq.spark.jobs.audit.consuming import samples_of, waiting
from evenq.spark.jobs.audit.job import audit
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.spark.jobs.audit.planting import plant, tidy
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

counts = st.dictionaries(st.integers(0, 50), st.integers(1, 100), max_size=10)


@given(counts, counts)
def test_what_waits_at_the_end_is_what_came_and_was_not_consumed(stored: dict[int, int], got: dict[int, int]) -> None:
    points = waiting("g", stored, got, 10)
    assert (points[-1].waiting if points else 0) == sum(stored.values()) - sum(got.values())
    assert [point.at for point in points] == sorted({point.at for point in points})


def test_a_queue_without_an_offset_has_no_lag() -> None:
    one, other = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
    (sample,) = samples_of(5, "g", {one: 7}, {one: 10, other: 10})
    assert (sample.queue_id, sample.lag) == (0, 3)


def record(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def consumption(group: str, process: int, unique_key: str, at: int, took: int) -> str:
    """Both records of a message that a consumer at 10.0.0.1 got."""
    call = f"0A000001{process:04X}CAFECAFE{at % 2**32:08X}0000"
    before = record("SubBefore", at, "DefaultRegion", group, call, unique_key, 0, "a key")
    return before + record("SubAfter", call, unique_key, took, "true", "a key", 0, at + took, group)


def test_load_latency_and_hands_come_from_the_trace(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, group: str, tmp_path: Path
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    seeds = tidy()
    plant(namesrv, topic, seeds)
    line = [seed for seed in seeds if seed.queue == 0]
    # of one queue: the first process has the first half, the second the rest but ten, one message both
    halves = [(7, seed) for seed in line[: len(line) // 2]] + [(8, seed) for seed in line[len(line) // 2 : -10]]
    later = max(seed.born for seed in seeds) + 120_000
    texts = [
        consumption(group, process, seed.unique_key, later + 100 * number, 5)
        for number, (process, seed) in enumerate(halves)
    ]
    texts.append(consumption(group, 8, line[0].unique_key, later + 90_000, 5))
    texts.append(record("Pub", later, "DefaultRegion", "p", topic, "ID", "", "", "1.2.3.4:1", 10, 1, 0, "ID", "true"))
    with evenq.Producer(namesrv, group="audit-tests") as producer:
        for text in texts:
            producer.send(Message(TRACE_TOPIC, text.encode()))

    found = audit(spark, [topic], str(tmp_path), namesrv=namesrv, groups=[group])

    (one,) = found.groups
    assert [(consumer.consumer, consumer.messages, consumer.queues) for consumer in one.consumers] == [
        ("10.0.0.1@7", 120, 1), ("10.0.0.1@8", 110, 1),
    ]  # fmt: skip
    assert (one.moves_count, one.again) == (1, 1)
    assert (one.moves[0].offset, one.moves[0].before, one.moves[0].after) == (120, "10.0.0.1@7", "10.0.0.1@8")
    assert one.handling is not None
    assert (one.handling.p50, one.handling.count) == (5.0, 231)
    assert one.consumed_after is not None
    assert one.consumed_after.count == 230
    assert one.lag[-1].waiting == 0
    assert max(point.waiting for point in one.lag) == 230
    assert "group " + group in (tmp_path / "report.html").read_text()


def test_javas_own_trace_is_understood(
    spark: SparkSession, any_cluster: AnyCluster, java: JavaHost, topic: str, group: str, tmp_path: Path
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    consumer = java.push(namesrv, group, topic, begin=Begin.FIRST, trace=True)
    with evenq.Producer(namesrv, group="audit-tests") as producer:
        receipts = [producer.send(Message(topic, b"x")) for _ in range(40)]
    consumer.wait_for(40)

    def look() -> bool:
        found = audit(spark, [topic], str(tmp_path), namesrv=namesrv, groups=[group])
        (one,) = found.groups
        # Java sends its trace after 5 s and its offsets every 10; what a stop would send may be lost
        if sum(each.messages for each in one.consumers) < 40 or one.behind:
            return False
        assert found.clean
        (each,) = one.consumers
        assert each.queues == len(Counter(receipt.queue for receipt in receipts))
        assert one.whole_way is not None
        assert one.whole_way.count == 40
        assert one.handling is not None
        assert one.handling.count == 40
        return True

    wait_until(look, "the trace of 40 messages", 180)
