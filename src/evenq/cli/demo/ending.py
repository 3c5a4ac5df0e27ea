"""The end of the demo: the audit, and what came of it all, in a table and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from evenq.cli.demo.verdict import Committed, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenq.spark.jobs.audit.findings import Audit

__all__ = ["audit", "tell"]


def audit(spark: SparkSession, namesrv: str, topic: str, group: str, out: Path) -> Audit:
    """Let the audit look at the topic and the group; its report and tables go to the folder ``audit``."""
    from evenq.spark.jobs.audit.job import audit as look

    return look(spark, [topic], str(out / "audit"), namesrv=namesrv, groups=[group])


def tell(
    console: Console,
    verdict: Verdict,
    killed: Mapping[str, Committed],
    audited: Audit | None,
    out: Path,
    moves: int,
    seconds: float,
) -> None:
    """The verdict for people, and in ``verdict.json`` for programs."""
    committed = {
        name: {f"{broker}:{queue}": offset for (broker, queue), offset in offsets.items()}
        for name, offsets in killed.items()
    }
    everything = asdict(verdict) | {"clean": verdict.clean, "killed": committed}
    (out / "verdict.json").write_text(json.dumps(everything, indent=2) + "\n")
    console.print(_table(verdict))
    first, *details = verdict.lines()
    judged = "as it should be" if verdict.clean else "NOT as it should be"
    console.print(f"[{'green' if verdict.clean else 'red'}]{first}: {judged}[/]")
    for line in details:
        console.print(line, soft_wrap=True, markup=False)
    if verdict.twice and not verdict.unexplained:
        said = "What came twice was in the hands of a member that was killed: it was done with, but not committed."
        console.print(said, soft_wrap=True)
    console.print(f"{moves} times a queue changed hands. It took {seconds:.0f} s.")
    places = {"The topic": "topic.parquet", "Spark's share": "orders.parquet", "All names": "verdict.json"}
    found = [f"{what}: {out / name}" for what, name in places.items() if (out / name).exists()]
    if audited is not None:
        said = "; ".join(finding.words for finding in audited.findings) or "nothing is wrong with the topic"
        found.append(f"The audit report: {audited.report} ({audited.messages:,} messages: {said})")
    console.print(*found, sep="\n", soft_wrap=True, markup=False)


def _table(verdict: Verdict) -> Table:
    table = Table()
    table.add_column("counted from the data")
    table.add_column("messages", justify="right")
    table.add_row("sent and confirmed", f"{verdict.sent:,}")
    table.add_row("stored in the topic", f"{verdict.stored:,}")
    for name, count in verdict.consumed.items():
        table.add_row(f"consumed by {name}", f"{count:,}")
    table.add_section()
    table.add_row("consumed by all", f"{sum(verdict.consumed.values()):,}")
    table.add_row("lost", f"{len(verdict.missing) + len(verdict.lost):,}")
    table.add_row("twice", f"{len(verdict.twice):,}")
    return table
