"""The what-if on Spark: the same as in one process, however many tasks, and also after it was cut off."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from evenq.balance.groups import CELLS, GroupsResult, Population, simulate_chunk, simulate_population
from evenq.balance.groups_draw import Array
from evenq.balance.groups_sizes import Shape, Sizes, shapes_of
from evenq.balance.groups_traffic import Traffic
from evenq.balance.scenario import Event, Scenario
from evenq.errors import ArgumentError
from evenq.spark.jobs.pace import State
from evenq.spark.jobs.progress import Interrupted, Progress
from evenq.spark.jobs.whatif import CHUNKS, identity, rows_of, whatif

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIO = Scenario(events=(Event("join"),), seed=7)
TRAFFIC = Traffic(((0.5, 0.5, 2.0), (1.0, 1.0)))


def population(groups: int = 3000, traffic: Traffic | None = TRAFFIC) -> Population:
    shapes = shapes_of(Sizes.parse("uniform:4-6"), Sizes.parse("lognormal:3:0.5:2-4"))
    return Population.of(SCENARIO, groups, shapes, ["AVG", "CONSISTENT_HASH", "STICKY"], traffic=traffic)


def without_times(results: Sequence[GroupsResult]) -> list[GroupsResult]:
    return [replace(result, seconds=0.0) for result in results]


# Pure


def test_rows_of_a_chunk_hold_all_that_it_found() -> None:
    whole = population()
    chunk = whole.chunks[4]
    results = simulate_chunk(whole, chunk)
    rows = rows_of(4, chunk, results)
    assert rows.schema == CHUNKS
    assert rows.column("strategy").to_pylist() == ["AVG", "CONSISTENT_HASH", "STICKY"]
    assert rows.column("moved").to_pylist() == [result.moved for result in results]
    assert [dict(pairs) for pairs in rows.column("loads").to_pylist()] == [result.loads for result in results]
    assert set(rows.column("queues").to_pylist()) == {chunk.shape.queues}


def test_simulations_that_may_differ_have_another_identity() -> None:
    others = [
        population(3001),
        population(traffic=None),
        population(traffic=Traffic(((1.0, 1.0),))),
        replace(population(), strategies=("AVG",)),
        replace(population(), virtual_nodes=11),
        replace(population(), scenario=replace(SCENARIO, seed=8)),
        replace(population(), scenario=replace(SCENARIO, events=(Event("leave"),))),
    ]
    names = {identity(one) for one in (population(), population(), *others)}
    assert len(names) == 1 + len(others)


# On Spark


@pytest.mark.spark
def test_tasks_make_no_difference_and_one_process_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    whole = population()
    expected = without_times(simulate_population(whole))
    assert len(whole.chunks) == 9
    for partitions, waves in ((1, 1), (8, 1), (2, 20)):
        out = tmp_path / f"{partitions}-{waves}"
        found = whatif(spark, whole, str(out), partitions=partitions, waves=waves)
        assert without_times(found.results) == expected
        assert (found.chunks, found.chunks_before) == (9, 0)


@pytest.mark.spark
def test_one_shape_in_several_chunks(spark: SparkSession, tmp_path: Path) -> None:
    size = CELLS // 256
    whole = Population.of(replace(SCENARIO, queues=256), 2 * size + 100, strategies=["AVG"])
    assert [chunk.groups for chunk in whole.chunks] == [size, size, 100]
    found = whatif(spark, whole, str(tmp_path))
    assert without_times(found.results) == without_times(simulate_population(whole))


@pytest.mark.spark
def test_the_tables_say_what_was_found(spark: SparkSession, tmp_path: Path) -> None:
    whole = population()
    found = whatif(spark, whole, str(tmp_path))
    strategies = {row["strategy"]: row for row in pq.read_table(tmp_path / "strategies").to_pylist()}
    assert list(strategies) == ["AVG", "CONSISTENT_HASH", "STICKY"]
    for result in found.results:
        row = strategies[result.strategy]
        assert (row["groups"], row["moved"], row["least"]) == (3000, result.moved, result.least)
        assert row["ratio"] == pytest.approx(result.moved / result.least)
        assert row["mean_traffic_peak"] == pytest.approx(result.traffic_peaks / 3000)
    shapes = pq.read_table(tmp_path / "shapes").to_pylist()
    assert {Shape(row["queues"], row["members"]): row["groups"] for row in shapes} == dict(whole.shapes)
    for name in strategies:
        assert sum(row["moved"] for row in shapes if row["strategy"] == name) == strategies[name]["moved"]
    histograms = pq.read_table(tmp_path / "histograms").to_pylist()
    spreads = [row for row in histograms if (row["strategy"], row["measure"]) == ("STICKY", "spreads")]
    assert {row["value"]: row["count"] for row in spreads} == found.results[2].spreads


@pytest.mark.spark
def test_work_that_fails_in_the_middle_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    flag = str(broken)

    class Fragile(Traffic):
        """Fails in a worker, for one size of group, as long as there is a certain file."""

        def draw(self, queues: int, topics: int, groups: int, chance: np.random.Generator) -> Array:
            if queues == 6 and Path(flag).exists():
                raise OSError("the disk of this worker is gone")
            return Traffic.draw(self, queues, topics, groups, chance)

    whole = population(traffic=Fragile(TRAFFIC.topics))
    out = tmp_path / "out"
    with pytest.raises(Exception, match="the disk of this worker is gone"):
        whatif(spark, whole, str(out), waves=9)
    assert not (out / "strategies").exists()
    before = {path.name: path.stat().st_mtime_ns for path in (out / "chunks").glob("*.parquet")}
    assert before, "what was done before is kept"
    broken.unlink()
    found = whatif(spark, whole, str(out), waves=9)
    assert 0 < found.chunks_before < found.chunks == 9
    assert without_times(found.results) == without_times(simulate_population(population()))
    assert {path.name: path.stat().st_mtime_ns for path in (out / "chunks").glob("*.parquet")}.items() >= before.items()
    again = whatif(spark, whole, str(out))
    assert again.chunks_before == 9, "nothing is done twice"
    assert again.results == found.results


@pytest.mark.spark
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(spark: SparkSession, tmp_path: Path) -> None:
    class Impatient(Progress):
        """Somebody at the keyboard, as soon as something is done."""

        def show(self, state: State) -> None:
            if state.done and state.unit == "groups":
                signal.raise_signal(signal.SIGINT)

    whole = population()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="run the same command again"):
        whatif(spark, whole, str(tmp_path), waves=9, progress=Impatient("what if", quiet=True))
    assert signal.getsignal(signal.SIGINT) is before
    found = whatif(spark, whole, str(tmp_path))
    assert 0 < found.chunks_before < found.chunks
    assert without_times(found.results) == without_times(simulate_population(whole))


@pytest.mark.spark
def test_a_folder_with_another_simulation_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    whatif(spark, population(50), str(tmp_path))
    with pytest.raises(ArgumentError, match="it holds another simulation"):
        whatif(spark, population(51), str(tmp_path))
