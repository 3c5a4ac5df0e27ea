"""A table to a topic, whole, in order, at a rate; and again after a failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evenq
from evenq.errors import ArgumentError
from evenq.protocol.codes import RequestCode
from evenq.spark.jobs.messages import MessageColumns
from evenq.spark.jobs.progress import Stop
from evenq.spark.jobs.publish import Published, publish
from evenq.spark.jobs.staging import Staging
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


def stored(namesrv: str, topic: str) -> int:
    """How many messages the topic has."""
    with Lookup(read_options({"namesrv": namesrv, "subscribe": topic})) as lookup:
        return sum(lookup.latest(lookup.queues(fresh=True)).values())


def read(spark: SparkSession, namesrv: str, topic: str, at_least: int, **options: str) -> list[Any]:
    """What is in the topic, when there is so much: a real broker takes a moment to enter messages in their queues."""
    wait_until(lambda: stored(namesrv, topic) >= at_least, f"{at_least} messages")
    frame = spark.read.format("rocketmq").options(namesrv=namesrv, subscribe=topic, **options).load()
    return frame.orderBy("broker", "queue_id", "offset").collect()


def orders(spark: SparkSession, many: int) -> DataFrame:
    return spark.range(many, numPartitions=3).selectExpr("id", "concat('c-', id % 7) customer", "id * 1.5 total")


def numbers(rows: list[Any]) -> Counter[int]:
    return Counter(json.loads(bytes(row.value))["id"] for row in rows)


def test_a_table_is_sent_as_it_was_asked_for(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    columns = MessageColumns(
        value="struct(id, total)",
        keys="array(customer, concat('o-', id))",
        tags="if(id % 2 = 0, 'even', null)",
        properties={"half": "total / 2", "none": "null"},
    )
    state = tmp_path / "state"
    done = publish(
        orders(spark, 500), topic, namesrv=any_cluster.namesrv, state=str(state), columns=columns, round_rows=120
    )
    assert (done.rows, done.sent, done.sent_before, done.finished) == (500, 500, 0, True)
    assert not state.exists(), "what is done leaves nothing"
    found = read(spark, any_cluster.namesrv, topic, 500, includeProperties="true")
    assert numbers(found) == Counter(range(500))
    for row in found:
        value = json.loads(bytes(row.value))
        number = value["id"]
        assert value["total"] == number * 1.5
        assert row.keys == f"c-{number % 7} o-{number}"
        assert row.tags == (None if number % 2 else "even")
        assert float(row.properties["half"]) == number * 0.75
        assert "none" not in row.properties
    assert len({(row.broker, row.queue_id) for row in found}) == 4


def test_a_round_that_was_cut_off_is_sent_again_and_read_once(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job dies with half of the second round sent; again with all of it sent, before that is written down."""
    create_topic(any_cluster.namesrv, topic, queues=2)

    def run() -> tuple[int, int]:
        done = publish(
            orders(spark, 400), topic, namesrv=any_cluster.namesrv, state=str(tmp_path / "state"), round_rows=100
        )
        assert done.finished
        return done.sent, done.sent_before

    class Cut(Exception):
        pass

    def die(staging: Staging, number: int) -> None:
        if number == 1:
            raise Cut
        noted(staging, number)

    def half(staging: Staging, files: Sequence[str]) -> DataFrame:
        frame = whole(staging, files)
        return frame.where("row_number % 2 = 0") if len(staging.sent()) == 1 else frame

    noted, whole = Staging.note_sent, Staging.read
    with monkeypatch.context() as patched:
        patched.setattr(Staging, "note_sent", die)
        patched.setattr(Staging, "read", half)
        with pytest.raises(Cut):
            run()
    with monkeypatch.context() as patched:
        patched.setattr(Staging, "note_sent", die)
        with pytest.raises(Cut):
            run()
    sent, before = run()
    assert sent + before == 400
    assert before > 0

    found = read(spark, any_cluster.namesrv, topic, 401)
    assert set(numbers(found)) == set(range(400)), "no gap"
    assert len(found) > 400, "something came twice"
    assert numbers(read(spark, any_cluster.namesrv, topic, 401, deduplicate="true")) == Counter(range(400))


def test_a_broker_that_fails_half_way_costs_no_row(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    """It stores some of a round and then no more; then it is well again."""
    with evenq.testing.cluster(brokers=1) as cluster:
        create_topic(cluster.namesrv, topic, queues=3)
        (broker,) = cluster.brokers.values()
        requests = count()
        broker.faults.add(RequestCode.SEND_BATCH_MESSAGE, when=lambda request: next(requests) >= 20)

        def run() -> Published:
            small = {"brokerTimeout": "50ms", "batchBytes": "1000"}
            return publish(
                orders(spark, 500), topic, namesrv=cluster.namesrv, state=str(tmp_path), round_rows=100, options=small
            )

        with pytest.raises(Exception, match="a fault on purpose"):
            run()
        broker.faults.clear()
        assert 0 < stored(cluster.namesrv, topic) < 500
        done = run()
        assert (done.rows, done.finished) == (500, True)
        assert done.sent_before < 500
        assert set(numbers(read(spark, cluster.namesrv, topic, 501))) == set(range(500)), "no gap"
        assert numbers(read(spark, cluster.namesrv, topic, 501, deduplicate="true")) == Counter(range(500))


# Publishes slowly in small rounds, to be killed in the midst of it.
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from evenq.spark.jobs.publish import Published, publish

namesrv, topic, table, state, rate = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
publish(spark.read.parquet(table), topic, namesrv=namesrv, state=state, rate=int(rate) or None, round_rows=100)
"""


def test_a_driver_that_is_killed_leaves_no_gap(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv, table, state = embedded_cluster.namesrv, str(tmp_path / "table"), str(tmp_path / "state")
    create_topic(namesrv, topic, queues=2)
    orders(spark, 1000).write.parquet(table)
    killed = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, namesrv, topic, table, state, "200"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: stored(namesrv, topic) > 150, "the second round under way", 300)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert stored(namesrv, topic) < 1000
    done = publish(spark.read.parquet(table), topic, namesrv=namesrv, state=state, round_rows=100)
    assert done.finished
    assert done.sent_before >= 100
    assert set(numbers(read(spark, namesrv, topic, 1000))) == set(range(1000)), "no gap"
    assert numbers(read(spark, namesrv, topic, 1000, deduplicate="true")) == Counter(range(1000))


def test_who_asks_to_stop_gets_whole_rounds(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=2)
    stop = Stop()

    def note(staging: Staging, number: int) -> None:
        noted(staging, number)
        stop.ask()

    noted = Staging.note_sent
    state = str(tmp_path / "state")
    with monkeypatch.context() as patched:
        patched.setattr(Staging, "note_sent", note)
        first = publish(
            orders(spark, 300), topic, namesrv=embedded_cluster.namesrv, state=state, round_rows=100, stop=stop
        )
    assert not first.finished
    assert 0 < first.sent < 300
    # the table is not read again: what was read is what is sent
    second = publish(orders(spark, 5), topic, namesrv=embedded_cluster.namesrv, state=state, round_rows=7)
    assert (second.rows, second.sent, second.sent_before, second.finished) == (300, 300 - first.sent, first.sent, True)
    assert numbers(read(spark, embedded_cluster.namesrv, topic, 300)) == Counter(range(300)), "and nothing twice"


def test_the_order_of_a_key_is_kept_through_tasks_and_rounds(
    spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    table = orders(spark, 600).orderBy("id", ascending=False)
    publish(
        table,
        topic,
        namesrv=any_cluster.namesrv,
        state=str(tmp_path / "state"),
        columns=MessageColumns(sharding_key="customer"),
        order_by="id",
        round_rows=80,
    )
    by_customer: dict[str, list[int]] = defaultdict(list)
    places = defaultdict(set)
    for row in read(spark, any_cluster.namesrv, topic, 600):
        value = json.loads(bytes(row.value))
        by_customer[value["customer"]].append(value["id"])
        places[value["customer"]].add((row.broker, row.queue_id))
    assert by_customer == {f"c-{n}": list(range(n, 600, 7)) for n in range(7)}
    assert all(len(queues) == 1 for queues in places.values())


def test_a_rate_is_kept_over_all_tasks(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=2)
    began = time.monotonic()
    done = publish(
        orders(spark, 2000),
        topic,
        namesrv=embedded_cluster.namesrv,
        state=str(tmp_path / "s"),
        rate=1000,
        round_rows=800,
    )
    assert done.sent == 2000
    found = read(spark, embedded_cluster.namesrv, topic, 2000)
    assert time.monotonic() - began >= 2.0
    times = [row.timestamp.timestamp() for row in found]
    assert max(times) - min(times) >= 1.6, "all but the last step of the last round"


def test_what_cannot_be_sent_is_found_before_anything_is(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"

    def error(**given: Any) -> str:
        with pytest.raises(ArgumentError) as caught:
            publish(orders(spark, 50), topic, namesrv=embedded_cluster.namesrv, state=str(state), **given)
        assert not state.exists()
        return str(caught.value)

    assert "value='8 of 50 rows': have nothing to send" in error(
        columns=MessageColumns(value="nullif(customer, 'c-0')")
    )
    assert "50 of 50 rows': are too large" in error(options={"maxMessageSize": "3"})
    keys = MessageColumns(keys="nullif(customer, 'c-1')")
    assert "keys='7 of 50 rows': have none" in error(selector="hash", columns=keys)
    assert "say which column is keys" in error(selector="hash")
    assert "order is kept within a queue" in error(order_by="id")
    assert "rate=0: give 1 or more" in error(rate=0)
    assert "keys='nobody': Spark says" in error(columns=MessageColumns(keys="nobody"))
    assert "did you mean selector?" in error(options={"selektor": "hash"})
    assert "the job sees to that by itself" in error(options={"writerId": "me", "epoch": "1"})


def test_an_empty_table_is_sent_at_once(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    done = publish(orders(spark, 0), topic, namesrv=embedded_cluster.namesrv, state=str(tmp_path / "state"))
    assert (done.rows, done.sent, done.finished) == (0, 0, True)
