"""Many groups for ``evenq simulate``: their sizes and traffic as people give them, one process or Spark, one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evenq.balance.groups import Population, simulate_population
from evenq.balance.groups_sizes import Shape, Sizes, shapes_of
from evenq.balance.groups_traffic import Traffic, Unit
from evenq.balance.scenario import Scenario
from evenq.cli.simulation_report import GroupsReport
from evenq.errors import ArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Wanted", "in_one_process", "on_spark", "population_of", "read_shapes", "read_traffic"]

UNITS = ("messages", "bytes")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for, as it stands on the command line."""

    groups: int | None
    queues: Sizes
    members: Sizes
    sizes: Path | None
    traffic: str | None
    unit: str
    strategies: Sequence[str] | None
    virtual_nodes: int

    @property
    def title(self) -> str | None:
        """How the sizes are told of in titles; None where all groups are alike."""
        if self.sizes is not None:
            return f"sizes of {self.sizes.name}"
        if self.queues.fixed and self.members.fixed:
            return None
        return f"{self.queues.text} queues, {self.members.text} members"


def population_of(scenario: Scenario, wanted: Wanted) -> Population:
    """The groups to simulate. A file of sizes may say how many there are of each."""
    if wanted.sizes is None:
        shapes: dict[Shape, float] = shapes_of(wanted.queues, wanted.members)
    else:
        shapes = read_shapes(wanted.sizes)
    groups = wanted.groups if wanted.groups is not None else round(sum(shapes.values()))
    if wanted.unit not in UNITS:
        raise ArgumentError("unit", wanted.unit, f"give {' or '.join(UNITS)}")
    traffic = None if wanted.traffic is None else read_traffic(wanted.traffic, cast(Unit, wanted.unit))
    return Population.of(
        scenario, groups, shapes, wanted.strategies, virtual_nodes=wanted.virtual_nodes, traffic=traffic
    )


def read_shapes(path: Path) -> dict[Shape, float]:
    """Sizes from a CSV or Parquet file with the columns ``queues`` and ``members``, and maybe ``groups``, how many."""
    found: dict[Shape, float] = {}
    for row in _rows("sizes", str(path), ("queues", "members")):
        shape = Shape(row["queues"], row["members"])
        weight = row.get("groups", 1)
        if not (_whole(shape.queues) and _whole(shape.members) and isinstance(weight, int | float) and weight >= 0):
            raise ArgumentError("sizes", str(path), f"a row says {row}: give whole numbers from 1 on")
        found[shape] = found.get(shape, 0.0) + weight
    if not sum(found.values()):
        raise ArgumentError("sizes", str(path), "there is no group in it")
    return {shape: weight for shape, weight in found.items() if weight}


def _whole(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def read_traffic(path: str, unit: Unit) -> Traffic:
    """The table by queue that ``evenq audit`` writes: topic, broker, queue_id, messages, bytes."""
    return Traffic.of(_rows("traffic", path, ("topic", unit)), unit)


def _rows(argument: str, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    import pyarrow as pa

    if not Path(path).exists():
        raise ArgumentError(argument, path, "there is no such file: give a Parquet table or a CSV file")
    try:
        table = _read(path)
    except (pa.ArrowException, OSError) as error:
        raise ArgumentError(argument, path, f"it cannot be read: {str(error).splitlines()[0]}") from None
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ArgumentError(argument, path, f"it has no column {' or '.join(missing)}, only {table.column_names}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _read(path: str) -> pa.Table:
    if path.endswith(".csv"):
        from pyarrow import csv

        return csv.read_csv(path)
    import pyarrow.parquet as pq

    return pq.read_table(path)


def in_one_process(population: Population, title: str | None) -> GroupsReport:
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=population.groups)
        results = simulate_population(population, progress=lambda done: bar.update(task, completed=done))
    return GroupsReport(population.scenario, results, title, population.traffic is not None)


def on_spark(
    population: Population, title: str | None, out: str, master: str | None, conf: Sequence[str] | None, quiet: bool
) -> GroupsReport:
    """On Spark; the tables and the page are in ``out``."""
    from evenq.cli.joboptions import spark_job
    from evenq.plot.whatif import page_of, picture_by_size
    from evenq.spark.jobs.progress import Progress as JobProgress
    from evenq.spark.jobs.whatif import whatif

    with spark_job("simulate", master, conf) as spark:
        found = whatif(spark, population, out, progress=JobProgress("simulate", quiet=quiet))
    report = GroupsReport(population.scenario, found.results, title, population.traffic is not None)
    folder = Path(out.removeprefix("file://")) if "://" not in out.removeprefix("file://") else Path()
    pictures = [report.picture(), *picture_by_size(found.by_shape)]
    page = folder / "whatif.html"
    page.write_text(page_of(report.title, pictures))
    for number, picture in enumerate(pictures, start=1):
        picture.save(folder / f"whatif-{number}.svg")
    before = f", {found.chunks_before:,} of them in an earlier run" if found.chunks_before else ""
    report.notes = (
        f"{population.groups:,} groups in {found.chunks:,} chunks{before}: {found.seconds:.1f} s, "
        f"{population.groups / found.seconds:,.0f} groups a second.",
        f"Tables: {out}/strategies, shapes, histograms, chunks. Page: {page}",
    )
    return report
