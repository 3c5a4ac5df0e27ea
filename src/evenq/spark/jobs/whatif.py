"""The what-if of strategies on Spark: very many groups of many sizes, simulated in chunks wherever there is room.

::

    population = Population.of(scenario, 10_000_000, shapes_of(queues, members), traffic=traffic)
    found = whatif(spark, population, "whatif")

A chunk's result depends on the population and its number alone, so neither the number of tasks nor a rerun changes
anything, and :func:`evenq.balance.groups.simulate_population` finds the same in one process. What is done is in the
table ``chunks``, a row for each chunk and strategy; work that was cut off goes on with what is missing there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenq.balance.groups import Chunk, GroupsResult, Population, simulate_chunk
from evenq.balance.groups_result import HISTOGRAMS
from evenq.balance.groups_sizes import Shape
from evenq.errors import ArgumentError
from evenq.spark.jobs.pace import State
from evenq.spark.jobs.progress import Interrupted, Progress, run, stoppable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CHUNKS", "WhatIf", "identity", "rows_of", "whatif"]

# The work is done in several jobs of Spark, of so many chunks or more: after each of them, what was done is safe.
CHUNKS_AT_LEAST = 32
MOST_WAVES = 20
# Tasks of a job for each core: they take different times.
TASKS_PER_CORE = 4

_HISTOGRAM = pa.map_(pa.int32(), pa.int64())
_NUMBERS = (
    *((name, pa.int64()) for name in ("groups", "moved", "least", "to_even", "exact", "unheld")),
    *((name, pa.float64()) for name in ("peaks", "traffic_peaks", "traffic_moved", "seconds")),
)
_FRACTIONS = "ratio exact mean_spread mean_peak traffic_moved mean_traffic_peak traffic_peak_99".split()
# Of the tables of results; what is not named is a whole number.
_COLUMNS = {"strategy": pa.string(), "measure": pa.string()} | dict.fromkeys(_FRACTIONS, pa.float64())
CHUNKS = pa.schema(
    [
        ("chunk", pa.int32()),
        ("queues", pa.int32()),
        ("members", pa.int32()),
        ("strategy", pa.string()),
        *_NUMBERS,
        *((name, _HISTOGRAM) for name in HISTOGRAMS),
    ]
)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One result per strategy, and per shape and strategy. ``chunks_before`` of the chunks are an earlier run's."""

    results: list[GroupsResult]
    by_shape: dict[Shape, list[GroupsResult]]
    chunks: int
    chunks_before: int
    seconds: float


def whatif(
    spark: SparkSession,
    population: Population,
    out: str,
    *,
    progress: Progress | None = None,
    partitions: int | None = None,
    waves: int | None = None,
) -> WhatIf:
    """Simulate the population; the tables ``strategies``, ``shapes``, ``histograms`` and ``chunks`` go to ``out``.

    Where ``out`` has some of the chunks of the same simulation already, only the others are done. ``partitions`` are
    the tasks of each of the ``waves``, which are as many as is sensible where not given.
    """
    chunks = population.chunks
    with progress or Progress("what if", quiet=True) as shown, stoppable() as stop:
        _claim(spark, population, out)
        done = _done(spark, population, out)
        todo = [number for number in range(len(chunks)) if number not in done]
        parts = partitions or TASKS_PER_CORE * spark.sparkContext.defaultParallelism
        groups = sum(chunks[number].groups for number in done)
        if done:
            shown.say(f"{len(done):,} of {len(chunks):,} chunks are there already, going on with the others")
        for wave in _waves(todo, waves or max(1, min(MOST_WAVES, len(todo) // CHUNKS_AT_LEAST))):
            state = partial(State, groups, population.groups, unit="groups")
            frame = _simulated(spark, population, wave, min(parts, len(wave)))
            run(spark, partial(frame.write.mode("append").parquet, f"{out}/chunks"), shown, state=state, stop=stop)
            groups += sum(chunks[number].groups for number in wave)
            if stop.asked:
                raise Interrupted(f"{shown.title} was stopped before its end: run the same command again")
        shown.show(State(groups, population.groups, unit="groups"))
        found = run(spark, lambda: _collected(spark, population, out), shown, stop=stop)
        by_shape = _by_shape(found, population)
        results = GroupsResult.total(result for _, result in found)
        run(spark, lambda: _write_tables(spark, out, results, by_shape), shown, stop=stop)
        return WhatIf(results, by_shape, len(chunks), len(done), shown.seconds)


def identity(population: Population) -> str:
    """One line that tells simulations apart: all that the result depends on."""
    scenario = asdict(population.scenario) | {"events": list(map(str, population.scenario.events))}
    details = (population.shapes, population.traffic and population.traffic.topics)
    return json.dumps(
        {
            "groups": population.groups,
            "scenario": {name: value for name, value in scenario.items() if name not in ("queues", "members")},
            "strategies": population.strategies,
            "virtual_nodes": population.virtual_nodes,
            "sizes_and_traffic": hashlib.sha256(repr(details).encode()).hexdigest(),
        }
    )


def rows_of(number: int, chunk: Chunk, results: Iterable[GroupsResult]) -> pa.RecordBatch:
    """The results of a chunk as rows of the table ``chunks``."""
    rows = [
        {"chunk": number, "queues": chunk.shape.queues, "members": chunk.shape.members, "strategy": result.strategy}
        | {name: getattr(result, name) for name, _ in _NUMBERS}
        | {name: list(getattr(result, name).items()) for name in HISTOGRAMS}
        for result in results
    ]
    return pa.RecordBatch.from_pylist(rows, CHUNKS)


def _waves(todo: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    """The chunks in so many parts; those of one size stay side by side, as they are drawn from the same names.

    >>> list(_waves([1, 2, 3, 5, 8], 2))
    [[1, 2, 3], [5, 8]]
    """
    size = -(-len(todo) // count)
    for first in range(0, len(todo), max(1, size)):
        yield todo[first : first + size]


def _simulated(spark: SparkSession, population: Population, numbers: Sequence[int], partitions: int) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.range(0, len(numbers), 1, partitions).mapInArrow(
        _worker(population, list(numbers)), from_arrow_schema(CHUNKS)
    )


def _worker(
    population: Population, numbers: Sequence[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in Spark's Python workers: places in ``numbers`` come in, results go out, chunk by chunk."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                chunk = population.chunks[numbers[place]]
                yield rows_of(numbers[place], chunk, simulate_chunk(population, chunk))

    return work


def _claim(spark: SparkSession, population: Population, out: str) -> None:
    """The folder is for this simulation: told by the table ``plan``."""
    own = identity(population)
    plan = _read(lambda: spark.read.text(f"{out}/plan"))
    if plan is None:
        spark.createDataFrame([(own,)], "value string").coalesce(1).write.text(f"{out}/plan")
    elif [row.value for row in plan.collect()] != [own]:
        raise ArgumentError("out", out, "it holds another simulation: give another folder, or remove this one")


def _done(spark: SparkSession, population: Population, out: str) -> set[int]:
    """The chunks that have a row for each strategy."""
    table = _read(lambda: _table(spark, out))
    if table is None:
        return set()
    counted = table.select("chunk", "strategy").distinct().groupBy("chunk").count()
    return {row.chunk for row in counted.collect() if row["count"] == len(population.strategies)}


def _table(spark: SparkSession, out: str) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.read.schema(from_arrow_schema(CHUNKS)).parquet(f"{out}/chunks")


def _read(read: Callable[[], DataFrame]) -> DataFrame | None:
    """What is there, or None where nothing is."""
    from pyspark.errors import AnalysisException

    try:
        return read()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _collected(spark: SparkSession, population: Population, out: str) -> list[tuple[Shape, GroupsResult]]:
    """All results, in the order of chunks and strategies: sums of fractions depend on it."""
    rows = _table(spark, out).dropDuplicates(["chunk", "strategy"]).toArrow().to_pylist()
    place = {name: number for number, name in enumerate(population.strategies)}
    rows.sort(key=lambda row: (row["chunk"], place[row["strategy"]]))
    return [(Shape(row["queues"], row["members"]), _result(row)) for row in rows]


def _result(row: dict[str, Any]) -> GroupsResult:
    values: dict[str, Any] = {name: row[name] for name, _ in _NUMBERS}
    values |= {name: dict(row[name]) for name in HISTOGRAMS}
    return GroupsResult(row["strategy"], **values)


def _by_shape(found: Iterable[tuple[Shape, GroupsResult]], population: Population) -> dict[Shape, list[GroupsResult]]:
    parts: dict[Shape, list[GroupsResult]] = {shape: [] for shape, _ in population.shapes}
    for shape, result in found:
        parts[shape].append(result)
    return {shape: GroupsResult.total(results) for shape, results in parts.items()}


def _write_tables(
    spark: SparkSession, out: str, results: Sequence[GroupsResult], by_shape: dict[Shape, list[GroupsResult]]
) -> None:
    tables: dict[str, list[dict[str, Any]]] = {
        "strategies": [_row(result) for result in results],
        "shapes": [asdict(shape) | _row(result) for shape, parts in by_shape.items() for result in parts],
        "histograms": [
            {"strategy": result.strategy, "measure": name, "value": value, "count": count}
            for result in results
            for name in HISTOGRAMS
            for value, count in sorted(getattr(result, name).items())
        ],
    }
    for name, rows in tables.items():
        schema = pa.schema([(column, _COLUMNS.get(column, pa.int64())) for column in rows[0]])
        table = spark.createDataFrame(pa.Table.from_pylist(rows, schema))
        table.coalesce(1).write.mode("overwrite").parquet(f"{out}/{name}")


def _row(result: GroupsResult) -> dict[str, Any]:
    """A strategy in one row, with the measures as means over the groups."""
    groups = result.groups
    return {
        "strategy": result.strategy,
        "groups": groups,
        "moved": result.moved,
        "least": result.least,
        "ratio": result.ratio,
        "exact": result.exact / groups,
        "unheld": result.unheld,
        "mean_spread": result.mean_spread,
        "max_spread": result.max_spread,
        "mean_peak": result.mean_peak,
        "traffic_moved": result.traffic_moved / groups,
        "mean_traffic_peak": result.mean_traffic_peak,
        "traffic_peak_99": result.fullness_at(0.99),
    }
