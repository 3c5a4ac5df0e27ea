"""Small files become larger ones, and no reader sees a row twice or none."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, StateError
from evenq.spark.jobs import compaction
from evenq.spark.jobs.compaction import Compacted, compact, merges
from evenq.spark.jobs.files import LocalFiles, exchange
from evenq.spark.jobs.publishing import Place, data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.integers(1, 200)), st.integers(2, 150))
def test_small_files_are_merged_once_and_up_to_the_target(sizes: dict[str, int], target: int) -> None:
    groups = merges(sizes, target)
    names = [name for group in groups for name in group]
    assert len(names) == len(set(names))
    for group in groups:
        assert len(group) > 1
        assert sum(sizes[name] for name in group) <= target
        assert all(sizes[name] * 2 < target or sizes[name] == 1 for name in group)


def table(spark: SparkSession, root: Path, files: int = 6) -> Place:
    frame = spark.range(60).selectExpr("id", "cast(id % 2 as string) topic", "'2026-01-01' date")
    frame.repartition(files, "id").write.partitionBy("date", "topic").parquet(str(root))
    return Place(LocalFiles(), str(root))


def rows(spark: SparkSession, root: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(root)).collect())


def count_of_files(root: Path) -> int:
    return len(data_files(LocalFiles().walk(str(root))))


def test_a_table_is_compacted(spark: SparkSession, tmp_path: Path) -> None:
    place = table(spark, tmp_path / "t")
    before = count_of_files(tmp_path / "t")
    assert compact(spark, place, "parquet") == Compacted(before, 2)
    assert count_of_files(tmp_path / "t") == 2
    assert rows(spark, tmp_path / "t") == list(range(60))
    assert compact(spark, place, "parquet") == Compacted()
    assert not list((tmp_path / "t" / "_evenq").glob("compaction/*")), "nothing is left behind"


def test_large_files_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    place = table(spark, tmp_path / "t", files=2)
    frame = spark.range(60, 5000).selectExpr("id", "uuid() noise", "'0' topic", "'2026-01-01' date")
    frame.coalesce(1).write.partitionBy("date", "topic").mode("append").parquet(str(tmp_path / "t"))
    sizes = data_files(LocalFiles().walk(str(tmp_path / "t")))
    (large,) = [name for name, size in sizes.items() if size > 50_000]
    compact(spark, place, "parquet", target=20_000)
    assert large in data_files(LocalFiles().walk(str(tmp_path / "t")))
    assert rows(spark, tmp_path / "t") == list(range(5000))


def test_columns_that_only_some_files_have_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    spark.range(3).selectExpr("id", "'a' old").coalesce(1).write.parquet(f"{root}/date=1")
    spark.range(3, 6).selectExpr("id", "'b' new").coalesce(1).write.mode("append").parquet(f"{root}/date=1")
    assert compact(spark, Place(LocalFiles(), str(root)), "parquet").made == 1
    found = spark.read.parquet(str(root))
    assert set(found.columns) == {"id", "old", "new", "date"}
    assert found.filter("old is null").count() == found.filter("new is null").count() == 3


@pytest.mark.parametrize("step", ["_merge", "_lay_out", "exchange", "rest"])
def test_a_death_at_any_point_leaves_the_rows_and_the_next_one_cleans_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    place = table(spark, tmp_path / "t")

    class Crash(BaseException):
        pass

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        # a process that dies does not clean up
        patch.setattr(LocalFiles, "remove", lambda self, path: None)
        if step == "rest":

            def then_die(one: Path, other: Path) -> None:
                exchange(one, other)
                raise Crash

            patch.setattr(compaction, "exchange", then_die)
        else:
            patch.setattr(compaction, step, die)
        with pytest.raises(Crash):
            compact(spark, place, "parquet")
    assert rows(spark, tmp_path / "t") == list(range(60))
    compact(spark, place, "parquet")
    assert rows(spark, tmp_path / "t") == list(range(60))
    assert count_of_files(tmp_path / "t") == 2
    assert not list((tmp_path / "t" / "_evenq").glob("compaction/*"))


def test_what_another_writer_adds_meanwhile_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = table(spark, tmp_path / "t")
    merge = compaction._merge

    def and_write(session: SparkSession, form: str, writing: object, live: Path, *rest: object) -> Path:
        made = merge(session, form, writing, live, *rest)  # type: ignore[arg-type]
        late = tmp_path / "late"
        session.range(60, 61).coalesce(1).write.mode("overwrite").parquet(str(late))
        (file,) = late.glob("*.parquet")
        file.rename(live / f"late-{live.name}.parquet")
        return made

    monkeypatch.setattr(compaction, "_merge", and_write)
    compact(spark, place, "parquet")
    assert rows(spark, tmp_path / "t") == [*range(60), 60, 60]


def test_whoever_lists_sees_the_one_folder_or_the_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    seen, done = set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(tuple(path.name for path in (tmp_path / "a").iterdir()))

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(2000):
        exchange(tmp_path / "a", tmp_path / "b")
    done.set()
    looking.join()
    assert seen <= {("a",), ("b",)}


def test_what_cannot_be_merged_is_refused(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="only parquet and orc"):
        compact(spark, Place(LocalFiles(), str(tmp_path)), "json")
    elsewhere = LocalFiles()
    elsewhere.local = False
    with pytest.raises(ArgumentError, match="merging needs a local file system"):
        compact(spark, Place(elsewhere, "hdfs://host/t"), "parquet")
    place = table(spark, tmp_path / "t")

    def unable(one: Path, other: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(compaction, "exchange", unable)
    with pytest.raises(StateError, match="cannot exchange two folders"):
        compact(spark, place, "parquet")
    assert rows(spark, tmp_path / "t") == list(range(60))
