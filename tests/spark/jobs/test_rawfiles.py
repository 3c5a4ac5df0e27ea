"""What workers write by themselves is what Spark would have written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenq
from evenq.client.read.ranges import QueueRange
from evenq.errors import StateError
from evenq.model import Message
from evenq.spark.jobs import rawfiles
from evenq.spark.jobs.ingest import ingest
from evenq.spark.jobs.rawfiles import can_write, folder_of, partitions, write_batches, write_ranges
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.spark.conftest import Send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("topic", pa.string()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
TIMES = st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
TOPICS = st.sampled_from(["orders", "%RETRY%billing", "a_b-c|d"])


def batch(rows: list[tuple[str, datetime]], first: int = 0) -> pa.RecordBatch:
    columns = [[topic for topic, _ in rows], list(range(first, first + len(rows))), [time for _, time in rows]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@given(st.lists(st.tuples(TOPICS, TIMES), max_size=30))
def test_every_row_goes_to_the_folder_of_its_day_and_topic(rows: list[tuple[str, datetime]]) -> None:
    found: dict[int, str] = {}
    for place, part in partitions(batch(rows)):
        assert part.schema.names == ["offset", "timestamp"]
        for offset in part.column("offset").to_pylist():
            assert offset not in found
            found[offset] = place
    expected = {n: f"date={time.date()}/topic={topic.replace('%', '%25')}" for n, (topic, time) in enumerate(rows)}
    assert found == expected


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rawfiles, "ROWS", 5)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    late = datetime(2026, 1, 2, 12, tzinfo=UTC)
    rows = [[("a", noon), ("a", noon), ("b", late)] for _ in range(8)]

    def batches(broken: bool) -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(rows):
            yield batch(each, number * 3)
        if broken:
            raise ConnectionError("no more")

    with pytest.raises(ConnectionError):
        write_batches(batches(True), tmp_path, "part-00000", "zstd")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    for _ in range(2):
        written = write_batches(batches(False), tmp_path, "part-00000", "zstd")
        assert sorted(written.values()) == [8, 16]
        assert all(Path(path).is_file() for path in written)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        "date=2026-01-01/topic=a/part-00000.zstd.parquet",
        "date=2026-01-02/topic=b/part-00000.zstd.parquet",
    ]
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert sorted(table.column("offset").to_pylist()) == list(range(24))


def test_options_that_only_spark_understands_are_left_to_it() -> None:
    assert can_write({})
    assert can_write({"compression": "zstd"})
    assert not can_write({"compression": "brotli"})
    assert not can_write({"compression": "zstd", "parquet.block.size": "1000"})


def test_folders_are_named_as_spark_names_them(spark: SparkSession, tmp_path: Path) -> None:
    topic = "%RETRY%a_b-C|9"
    frame = spark.createDataFrame([(topic,)], "topic STRING").selectExpr("1 id", "topic", "DATE'2024-10-04' date")
    frame.write.partitionBy("date", "topic").parquet(str(tmp_path / "t"))
    assert (tmp_path / "t" / folder_of(date(2024, 10, 4), topic)).is_dir()


def test_the_table_is_the_same_by_workers_and_by_spark(
    spark: SparkSession, any_cluster: AnyCluster, send: Send, topic: str, tmp_path: Path
) -> None:
    send(
        Message(topic, b"%d" % number, keys=[f"k-{number}"] if number % 2 else [], properties={"p": str(number)})
        for number in range(50)
    )

    def table(name: str, **writing: str) -> tuple[Any, list[Any]]:
        options = {"includeProperties": "true"}
        given: dict[str, Any] = {"namesrv": any_cluster.namesrv, "once": True, "spark": spark, "options": options}
        done = ingest(topic, str(tmp_path / name), writing=writing, **given)
        assert done.rows == 50
        frame = spark.read.parquet(done.table)
        return frame.schema, sorted(frame.collect(), key=lambda row: int(bytes(row.value)))

    by_workers, by_spark = table("workers"), table("spark", **{"parquet.block.size": "1048576"})
    assert by_workers == by_spark


def test_files_that_only_a_worker_sees_are_an_error(
    spark: SparkSession,
    embedded_cluster: AnyCluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    with evenq.Producer(embedded_cluster.namesrv) as producer:
        producer.send(Message(topic, b"one"))
    # as if the driver were on another machine
    monkeypatch.setattr(Path, "exists", lambda path: False)
    options = read_options({"namesrv": embedded_cluster.namesrv, "subscribe": topic})
    with Lookup(options) as lookup:
        ranges = [QueueRange(queue, 0, end) for queue, end in lookup.latest(lookup.queues()).items()]
    with pytest.raises(StateError, match="give a folder that all machines share"):
        write_ranges(spark, options, ranges, str(tmp_path), {})
