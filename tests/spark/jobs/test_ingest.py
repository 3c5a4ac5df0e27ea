"""Topics into tables: every message exactly once, whatever happens in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenq.errors import ArgumentError
from evenq.model import Message
from evenq.spark.jobs import compaction, publishing
from evenq.spark.jobs.checkpoint import reached
from evenq.spark.jobs.files import LocalFiles, exchange
from evenq.spark.jobs.ingest import Ingested, ingest
from evenq.spark.jobs.progress import Stop
from evenq.spark.jobs.publishing import data_files
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Run = Callable[..., Ingested]


@pytest.fixture
def run(spark: SparkSession, any_cluster: AnyCluster, topic: str, tmp_path: Path) -> Run:
    """Ingests the test's topic into ``tmp_path/table``, once."""

    def ingested(**more: Any) -> Ingested:
        given: dict[str, Any] = {"namesrv": any_cluster.namesrv, "once": True, "spark": spark} | more
        return ingest(topic, str(tmp_path / "table"), **given)

    return ingested


def numbers(first: int, last: int, topic: str) -> Iterator[Message]:
    return (Message(topic, b"%d" % number, keys=[f"k-{number}"]) for number in range(first, last))


def values(spark: SparkSession, table: Path) -> Counter[int]:
    rows = spark.read.parquet(str(table)).select("value").collect()
    return Counter(int(bytes(row.value)) for row in rows)


def files_of(table: Path) -> dict[str, int]:
    return data_files(LocalFiles().walk(str(table)))


def test_a_topic_becomes_a_table_and_goes_on_where_it_was(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    receipts = send(numbers(0, 30, topic))
    done = run()
    assert (done.rows, done.bad, done.finished, done.batches) == (30, 0, True, 1)
    assert done.files == len(files_of(table)) > 0
    again = run()
    assert (again.rows, again.files) == (0, 0)
    send(numbers(30, 40, topic))
    assert run(options={"maxOffsetsPerTrigger": "3"}).batches >= 3
    assert values(spark, table) == Counter(range(40))

    frame = spark.read.parquet(str(table))
    assert {"broker", "queue_id", "offset", "timestamp", "keys", "value", "msg_id", "date", "topic"} < set(
        frame.columns
    )
    places = {(row.broker, row.queue_id, row.offset) for row in frame.collect()}
    assert {(sent.queue.broker, sent.queue.queue_id, sent.offset) for sent in receipts} < places
    days = frame.selectExpr("date = to_date(to_utc_timestamp(timestamp, current_timezone())) same", "topic").distinct()
    assert [(row.same, row.topic) for row in days.collect()] == [(True, topic)]
    assert all(name.startswith("date=") and f"/topic={topic}/" in name for name in files_of(table))


def test_options_of_the_source_go_through(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path
) -> None:
    send(Message(topic, b"%d" % number, tags="odd" if number % 2 else "even") for number in range(20))
    done = run(options={"tags": "odd", "includeProperties": "true"}, writing={"compression": "snappy"})
    assert done.rows == 10
    assert values(spark, tmp_path / "table") == Counter(range(1, 20, 2))
    assert "properties" in spark.read.parquet(str(tmp_path / "table")).columns
    assert all(name.endswith(".snappy.parquet") for name in files_of(tmp_path / "table"))


def test_what_does_not_fit_the_schema_goes_to_a_table_of_its_own(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path
) -> None:
    bodies = [json.dumps({"id": number, "name": f"n-{number}"}).encode() for number in range(20)]
    bad = {
        b"nonsense": "not parseable: Expecting value",
        b'{"name": "x"}': "missing field: id",
        b'{"id": []}': "wrong type",
    }
    send(Message(topic, body) for body in [*bodies, *bad, *bodies[:2]])
    schema = tmp_path / "schema.json"
    document = {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}
    schema.write_text(json.dumps(document))
    done = run(schema=str(schema))
    assert (done.rows, done.bad) == (22, 3)
    rows = spark.read.parquet(done.table).selectExpr("value.*").collect()
    assert Counter(row.id for row in rows) == Counter([*range(20), 0, 1])
    assert {row.name for row in rows} == {f"n-{number}" for number in range(20)}
    found = {bytes(row.value): row.reason for row in spark.read.parquet(done.bad_table).collect()}
    assert set(found) == set(bad)
    for body, reason in bad.items():
        assert found[body].startswith(reason)
    columns = set(spark.read.parquet(done.table).columns)
    assert set(spark.read.parquet(done.bad_table).columns) == columns | {"reason"}


@pytest.mark.parametrize("point", ["written", "noted", "half moved", "all moved"])
def test_a_failure_in_a_batch_and_another_run_give_every_message_once(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    from pyspark.errors import StreamingQueryException

    send(Message(topic, b'{"id": %d}' % number if number % 5 else b"%d" % number) for number in range(40))
    steps: Counter[str] = Counter()

    def fail_at(name: str, when: int, *, after: bool = False) -> None:
        step = getattr(LocalFiles, name)

        def failing(self: LocalFiles, path: str, *rest: Any) -> None:
            journal = "/journal/" in path
            if name != "write" or journal:
                steps[name] += 1
                if steps[name] == when and not after:
                    raise RuntimeError("the lights went out")
            step(self, path, *rest)
            if journal and steps[name] == when and after:
                raise RuntimeError("the lights went out")

        monkeypatch.setattr(LocalFiles, name, failing)

    match point:
        case "written":
            fail_at("write", 2)
        case "noted":
            fail_at("write", 2, after=True)
        case "half moved":
            fail_at("move", 6)
        case "all moved":
            monkeypatch.setattr(publishing, "_forget", _fails_at(2))
    options = {"maxOffsetsPerTrigger": "10"}
    with pytest.raises(StreamingQueryException, match="the lights went out"):
        run(schema="id BIGINT", options=options)
    monkeypatch.undo()
    send(Message(topic, b'{"id": %d}' % number) for number in range(41, 45))
    done = run(schema="id BIGINT", options=options, compacting=True)
    good = Counter(row.id for row in spark.read.parquet(done.table).selectExpr("value.id").collect())
    assert good == Counter(number for number in range(45) if number % 5)
    assert values(spark, Path(done.bad_table)) == Counter(range(0, 40, 5))


def _fails_at(when: int) -> Callable[..., None]:
    calls = Counter[str]()

    def failing(*_: object) -> None:
        calls["all"] += 1
        if calls["all"] == when:
            raise RuntimeError("the lights went out")

    return failing


# Ingests in small batches, and is killed with all that belongs to it when a file of the third is in its place.
KILLED = """
import os, signal, sys
from evenq.spark.jobs import files
from evenq.spark.jobs.ingest import ingest

namesrv, topic, table = sys.argv[1:]
move = files.LocalFiles.move

def dying(self, source, target):
    move(self, source, target)
    if "-00000002-" in target:
        os.killpg(0, signal.SIGKILL)

files.LocalFiles.move = dying
ingest(topic, table, namesrv=namesrv, once=True, options={"maxOffsetsPerTrigger": "25"})
"""


def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    spark: SparkSession, send: Send, run: Run, any_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(numbers(0, 100, topic))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, any_cluster.namesrv, topic, str(table)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            # whoever is killed does not remove what he has there
            "TMPDIR": str(tmp_path),
        },
        cwd=tmp_path,
        capture_output=True,
        timeout=180,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    before = values(spark, table)
    assert 50 < sum(before.values()) <= 75, "two batches and something of the third"
    send(numbers(100, 110, topic))
    run()
    assert values(spark, table) == Counter(range(110))


def test_small_files_are_merged(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenq.spark.jobs.ingest.COMPACT_EVERY", 2)
    send(numbers(0, 40, topic))
    done = run(options={"maxOffsetsPerTrigger": "10"}, compacting=True)
    assert done.merged >= done.files > 1
    assert len(files_of(tmp_path / "table")) == 1
    assert values(spark, tmp_path / "table") == Counter(range(40))


def test_merging_that_dies_in_a_stream_and_another_run_give_every_message_once(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import StreamingQueryException

    monkeypatch.setattr("evenq.spark.jobs.ingest.COMPACT_EVERY", 1)
    send(numbers(0, 40, topic))

    def and_die(one: Path, other: Path) -> None:
        exchange(one, other)
        raise RuntimeError("the lights went out")

    monkeypatch.setattr(compaction, "exchange", and_die)
    with pytest.raises(StreamingQueryException, match="the lights went out"):
        run(options={"maxOffsetsPerTrigger": "20"}, compacting=True)
    monkeypatch.setattr(compaction, "exchange", exchange)
    run(options={"maxOffsetsPerTrigger": "20"}, compacting=True)
    assert values(spark, tmp_path / "table") == Counter(range(40))


def test_a_stream_goes_on_until_it_is_stopped_and_then_from_there(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path
) -> None:
    stop, table = Stop(), tmp_path / "table"
    results: list[Ingested] = []
    streaming = threading.Thread(
        target=lambda: results.append(run(once=False, every="100 milliseconds", stop=stop)), daemon=True
    )
    send(numbers(0, 10, topic))
    streaming.start()
    wait_until(lambda: files_of(table), "the first files", 60)
    send(numbers(10, 20, topic))
    # the files are there before Spark notes that the batch is done: what a stop finds in between comes again
    checkpoint = str(table / "_evenq" / "checkpoint")
    wait_until(lambda: sum((reached(spark, checkpoint) or {}).values()) == 20, "all rows", 60)
    stop.ask()
    streaming.join(180)
    assert [(done.rows, done.finished) for done in results] == [(20, False)]
    send(numbers(20, 25, topic))
    assert run().rows == 5
    assert values(spark, table) == Counter(range(25))


def test_other_formats(spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path) -> None:
    send(numbers(0, 10, topic))
    assert run(format="orc", compacting=True).rows == 10
    rows = spark.read.orc(str(tmp_path / "table")).collect()
    assert Counter(int(bytes(row.value)) for row in rows) == Counter(range(10))


def test_a_format_that_is_no_files_gets_the_same_rows(
    spark: SparkSession, send: Send, run: Run, topic: str, tmp_path: Path
) -> None:
    from tests.spark.jobs.keeping import Keeping, kept

    spark.dataSource.register(Keeping)
    send(numbers(0, 10, topic))
    done = run(format="kept")
    assert (done.rows, done.files) == (10, 0)
    found = kept(tmp_path / "table")
    assert Counter(int(value) for value, _, _ in found) == Counter(range(10))
    assert {name for _, _, name in found} == {topic}


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"format": "delta"}, r"format='delta': .* --conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION"),
        ({"format": "nonsense"}, "format='nonsense': Spark has no such format here"),
        ({"format": "json", "compacting": True}, "only parquet and orc"),
        ({"schema": "id NOTHING"}, "schema='id NOTHING'"),
        ({"options": {"subscribe": "other"}}, "subscribe='other': this is given twice"),
    ],
)
def test_mistakes_are_found_before_anything_is_done(
    spark: SparkSession, tmp_path: Path, more: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        ingest("orders", str(tmp_path / "table"), namesrv="127.0.0.1:1", once=True, spark=spark, **more)
    assert not (tmp_path / "table").exists()


def test_a_table_is_not_mixed_up_with_another_topic(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-b"):
        create_topic(embedded_cluster.namesrv, name, queues=1)
    given: dict[str, Any] = {"namesrv": embedded_cluster.namesrv, "once": True, "spark": spark}
    ingest(topic, str(tmp_path / "table"), **given)
    ingest([topic, f"{topic}-b"], str(tmp_path / "table"), **given)
    with pytest.raises(ArgumentError, match="was made for"):
        ingest(f"{topic}-b", str(tmp_path / "table"), **given)
