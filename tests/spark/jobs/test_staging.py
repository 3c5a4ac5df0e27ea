"""Rows that wait to be sent: rounds, and the folder that they wait in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, StateError
from evenq.spark.jobs.publish import Layout, layout
from evenq.spark.jobs.staging import Staging, rounds_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(st.lists(st.lists(st.integers(1, 9), max_size=4), max_size=5))
def test_a_round_has_the_next_rows_of_every_task(tasks: list[list[int]]) -> None:
    files = {
        f"part-{task:05d}-x-c{number:03d}.snappy.parquet": rows
        for task, counts in enumerate(tasks)
        for number, rows in enumerate(counts)
    }
    rounds = rounds_of(files)
    assert sorted(name for each in rounds for name in each.files) == sorted(files)
    assert sum(each.rows for each in rounds) == sum(files.values())
    for number, each in enumerate(rounds):
        assert all(f"c{number:03d}" in name for name in each.files)


def test_rounds_are_in_the_order_of_numbers_beyond_three_digits() -> None:
    files = {f"part-0-x-c{number:03d}.snappy.parquet": number for number in (999, 1000, 2)}
    assert [each.rows for each in rounds_of(files)] == [2, 999, 1000]
    with pytest.raises(StateError, match=r"stranger\.parquet"):
        rounds_of({"stranger.parquet": 1})


@given(st.integers(1, 64), st.none() | st.integers(1, 10_000_000), st.integers(1, 1_000_000))
def test_tasks_together_keep_to_the_rate(parallelism: int, rate: int | None, rows: int) -> None:
    found = layout(parallelism, rate, rows)
    assert 1 <= found.tasks <= parallelism
    assert found.rows_per_task >= 1
    if rate is not None:
        assert (rate // found.tasks) * found.tasks <= rate
        assert rate // found.tasks >= 1


def test_a_low_rate_has_one_task_and_short_rounds() -> None:
    assert layout(8, 5, 200_000) == Layout(1, 50)


def test_rows_come_back_in_order_a_task_for_each_file(spark: SparkSession, tmp_path: Path) -> None:
    staging = Staging(spark, str(tmp_path / "state"), {"topic": "t"})
    assert staging.staged() is None
    staging.stage(spark.range(100, numPartitions=3).selectExpr("cast(id as string) value"), rows_per_file=20)
    staged = staging.seal()
    assert staged.rows == 100
    assert [each.rows for each in staged.rounds] == [60, 40]
    back: list[int] = []
    for each in staged.rounds:
        frame = staging.read(each.files)
        assert frame.rdd.getNumPartitions() == 3
        for task in frame.rdd.glom().collect():
            numbers = [int(row.value) for row in task]
            assert numbers == sorted(numbers)
            back += numbers
    assert sorted(back) == list(range(100))

    staging.note_sent(1)
    again = Staging(spark, str(tmp_path / "state"), {"topic": "t"})
    assert (again.staged(), again.sent()) == (staged, {1})
    again.clear()
    assert not (tmp_path / "state").exists()


def test_a_folder_belongs_to_one_job(spark: SparkSession, tmp_path: Path) -> None:
    Staging(spark, str(tmp_path / "a"), {"topic": "t", "columns": {"keys": None}})
    Staging(spark, str(tmp_path / "a"), {"topic": "t", "columns": {"keys": None}})
    with pytest.raises(ArgumentError, match="another job was begun there, with topic 't' and not 'u'"):
        Staging(spark, str(tmp_path / "a"), {"topic": "u", "columns": {"keys": None}})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rows").write_text("somebody's")
    with pytest.raises(ArgumentError, match="there are other things in it"):
        Staging(spark, str(tmp_path / "b"), {"topic": "t"})
    assert (tmp_path / "b" / "rows").read_text() == "somebody's"
