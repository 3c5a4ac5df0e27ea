"""Ten million groups of 16 queues and 4 members, one joins, under every strategy: Spark next to one process.

``python -m bench.whatif [GROUPS]``. The results of both are compared as well, group for group, on a part.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace

from rich.console import Console

from evenq.balance.groups import Population, simulate_population
from evenq.balance.scenario import Event, Scenario
from evenq.spark.jobs.progress import Progress
from evenq.spark.jobs.session import session
from evenq.spark.jobs.whatif import whatif

GROUPS = 10_000_000
# so many are simulated in one process
PART = 500_000

SCENARIO = Scenario(queues=16, members=4, events=(Event("join"),))


def main() -> None:
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS
    console = Console(width=100, highlight=False)
    part = Population.of(SCENARIO, min(PART, groups))
    begun = time.perf_counter()
    alone = simulate_population(part)
    alone_rate = part.groups / (time.perf_counter() - begun)
    spark = session("bench what-if", settings={"spark.driver.memory": "1g"})
    with tempfile.TemporaryDirectory() as folder:
        same = whatif(spark, part, f"{folder}/part")
        assert [replace(one, seconds=0) for one in same.results] == [replace(one, seconds=0) for one in alone]
        begun = time.perf_counter()
        found = whatif(spark, Population.of(SCENARIO, groups), f"{folder}/all", progress=Progress("what if"))
        seconds = time.perf_counter() - begun
    spark.stop()
    rate = groups / seconds
    for result in found.results:
        console.print(f"{result.strategy:<24} moved {result.moved / result.groups:.4f}, widest {result.max_spread}")
    console.print(f"One process: {alone_rate:,.0f} groups a second.")
    console.print(
        f"Spark, {os.cpu_count()} cores: {groups:,} groups in {seconds:.1f} s, {rate:,.0f} a second, "
        f"{rate / alone_rate:.2f} × one process."
    )


if __name__ == "__main__":
    main()
