"""A writing task without Spark: record batches to messages."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenq
from evenq.client.read.ranges import QueueRange
from evenq.errors import RemoteError
from evenq.spark import batches, outbox, writer
from evenq.spark.batches import record_batches
from evenq.spark.lookup import Lookup
from evenq.spark.marks import Origin
from evenq.spark.options import read_options
from evenq.spark.sinkoptions import write_options
from evenq.spark.writer import RateLimit, write
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

Row = dict[str, Any]
ORIGIN = Origin("5f2c8e01a9b34d778e01b2c3d4e5f607", 0, 0)


def frames(rows: list[Row], size: int = 700) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_pylist(rows)
    return iter(table.to_batches(max_chunksize=size))


def read(namesrv: str, topic: str, at_least: int, **options: str) -> list[Row]:
    """What is in the topic, when there is so much: a real broker takes a moment to enter messages in their queues."""
    checked = read_options({"namesrv": namesrv, "subscribe": topic} | options)
    with Lookup(checked) as lookup:
        queues = lookup.queues(fresh=True)
        wait_until(lambda: sum(lookup.latest(queues).values()) >= at_least, f"{at_least} messages")
        ranges = [QueueRange(queue, 0, end) for queue, end in lookup.latest(queues).items()]
    return [row for batch in record_batches(checked, ranges) for row in batch.to_pylist()]


def test_rows_become_messages(any_cluster: AnyCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # several batches and turns for little data
    monkeypatch.setattr(writer, "TOGETHER", 300)
    monkeypatch.setattr(outbox, "ROOM", 20_000)
    create_topic(any_cluster.namesrv, topic, queues=2)
    rows: list[Row] = [
        {
            "value": f"v{n}" if n % 100 else "x" * 6000,
            "keys": f"k{n} all",
            "tags": f"t{n % 3}",
            "sharding_key": f"s{n % 5}",
        }
        for n in range(2000)
    ]
    options = write_options({"namesrv": any_cluster.namesrv, "topic": topic, "batchBytes": "10000"})
    assert write(options, ORIGIN, frames(rows)) == 2000

    found = read(any_cluster.namesrv, topic, 2000, includeProperties="true")
    assert len({row["unique_key"] for row in found}) == 2000
    shards: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(found, key=lambda row: (row["broker"], row["queue_id"], row["offset"])):
        shards[dict(row["properties"])["__SHARDINGKEY"]].append(row)
    for shard, got in shards.items():
        assert len({(row["broker"], row["queue_id"]) for row in got}) == 1
        wanted = [row for row in rows if row["sharding_key"] == shard]
        assert [bytes(row["value"]).decode() for row in got] == [row["value"] for row in wanted], "in order"
        assert [(row["keys"], row["tags"]) for row in got] == [(row["keys"], row["tags"]) for row in wanted]


def test_rows_are_spread_evenly_over_topics_that_are_made(any_cluster: AnyCluster, topic: str) -> None:
    names = [topic, f"{topic}-b"]
    rows: list[Row] = [{"value": b"%d" % n, "topic": names[n % 2]} for n in range(1600)]
    write(write_options({"namesrv": any_cluster.namesrv}), ORIGIN, frames(rows))
    for name in names:
        found = Counter((row["broker"], row["queue_id"]) for row in read(any_cluster.namesrv, name, 800))
        assert max(found.values()) - min(found.values()) <= 1


def test_delayed_rows_come_when_they_are_due(any_cluster: AnyCluster, topic: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    now = datetime.now(UTC)
    rows: list[Row] = [
        {"value": b"now", "delay_level": None, "deliver_at": None},
        {"value": b"level", "delay_level": 1, "deliver_at": None},
        {"value": b"time", "delay_level": None, "deliver_at": now + timedelta(seconds=1)},
    ]
    write(write_options({"namesrv": any_cluster.namesrv, "topic": topic}), ORIGIN, frames(rows))
    found = {bytes(row["value"]): row["timestamp"] for row in read(any_cluster.namesrv, topic, 3)}
    assert found.keys() == {b"now", b"level", b"time"}
    # by the clock from before: the rows go to two brokers side by side
    assert found[b"level"] >= now + timedelta(milliseconds=900)
    assert found[b"time"] >= now + timedelta(milliseconds=900)


def test_what_is_written_again_is_left_out(
    any_cluster: AnyCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ROWS", 100)
    create_topic(any_cluster.namesrv, topic, queues=2)
    options = write_options({"namesrv": any_cluster.namesrv, "topic": topic})
    first: list[Row] = [{"value": b"first %d" % n} for n in range(1000)]
    second: list[Row] = [{"value": b"second %d" % n} for n in range(1000)]
    for epoch, rows in enumerate((first, second)):
        origin = Origin(ORIGIN.query, epoch, 0)
        write(options, origin, frames(rows[:600]))
        write(options, origin, frames(rows))
    assert len(read(any_cluster.namesrv, topic, 3200)) == 3200
    found = Counter(row["value"] for row in read(any_cluster.namesrv, topic, 3200, deduplicate="true"))
    assert found == Counter(row["value"] for row in first + second)


def test_a_limit_is_kept_in_steps_and_up_to_the_end() -> None:
    now = 100.0
    limit = RateLimit(50, clock=lambda: now)
    assert limit.step == 5
    assert limit.pause(5) == pytest.approx(0.1)
    now += 0.3
    assert limit.pause(5) == 0.0, "what was late is made up for"
    assert limit.pause(25) == pytest.approx(0.4)
    assert RateLimit(3).step == 1
    assert RateLimit(1_000_000).step == writer.TOGETHER


def test_rows_under_a_limit_take_their_time_and_all_come(embedded_cluster: AnyCluster, topic: str) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    options = write_options({"namesrv": embedded_cluster.namesrv, "topic": topic, "rowsPerSecond": "200"})
    began = time.monotonic()
    assert write(options, ORIGIN, frames([{"value": b"%d" % n} for n in range(100)])) == 100
    assert time.monotonic() - began >= 0.5
    assert len(read(embedded_cluster.namesrv, topic, 100)) == 100


@pytest.mark.live
def test_a_broker_that_is_away_is_waited_for(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [{"value": b"%d" % n} for n in range(100)]
    with evenq.testing.cluster(brokers=2) as cluster:
        create_topic(cluster.namesrv, topic, queues=1)
        _, broker = sorted(cluster.brokers)
        options = write_options({"namesrv": cluster.namesrv, "topic": topic})

        def cut_off() -> Iterator[pa.RecordBatch]:
            yield from frames(rows[:50])
            cluster.stop_broker(broker)
            restarting.start()
            yield from frames(rows[50:])

        restarting = threading.Timer(0.5, cluster.start_broker, [broker])
        write(options, ORIGIN, cut_off())
        restarting.join()
        found = Counter(row["value"] for row in read(cluster.namesrv, topic, 100))
        assert set(found) == {row["value"] for row in rows}

        cluster.stop_broker(broker)
        impatient = write_options({"namesrv": cluster.namesrv, "topic": topic, "brokerTimeout": "10ms"})
        with pytest.raises(RemoteError):
            write(impatient, ORIGIN, cut_off_at(cluster, rows))


def cut_off_at(cluster: evenq.testing.EmbeddedCluster, rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Rows, and after the first of them no broker at all."""
    yield from frames(rows[:50])
    for name in list(cluster.brokers):
        cluster.stop_broker(name)
    yield from frames(rows[50:])
