"""One million groups of 16 queues and 4 members, one joins, under every strategy: what it takes, and what it shows.

``python -m bench.simulate [GROUPS]``. Exits with 1 where a million groups take longer than the goal.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from evenq.balance.groups import GroupsResult, simulate_groups
from evenq.balance.scenario import Event, Scenario
from evenq.balance.simulation import simulate

GROUPS = 1_000_000
# seconds of one core for all strategies together
GOAL = 60.0
# groups that the object implementation is timed with
SAMPLE = 200

SCENARIO = Scenario(queues=16, members=4, events=(Event("join"),))


def one_by_one() -> float:
    """Seconds that one group takes under all strategies, without numpy."""
    begun = time.process_time()
    for seed in range(SAMPLE):
        for run in simulate(replace(SCENARIO, seed=seed)):
            assert run.spread + run.moved + run.least
    return (time.process_time() - begun) / SAMPLE


def table_of(results: list[GroupsResult]) -> Table:
    table = Table(title=f"{results[0].groups:,} groups: 16 queues, 4 members, one joins", box=SIMPLE_HEAD)
    table.add_column("strategy", no_wrap=True)
    for heading in ("seconds", "groups/s", "moved", "× least", "exact", "spread", "widest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            result.strategy,
            f"{result.seconds:.2f}",
            f"{result.groups / result.seconds:,.0f}",
            f"{result.moved / result.groups:.3f}",
            f"{result.moved / result.least:.3f}",
            f"{result.exact / result.groups:.1%}",
            f"{result.mean_spread:.3f}",
            str(result.max_spread),
        )
    return table


def main() -> None:
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS
    begun = time.process_time()
    results = simulate_groups(SCENARIO, groups)
    seconds = time.process_time() - begun
    slowly = one_by_one() * groups
    console = Console(width=100, highlight=False)
    console.print(table_of(results))
    console.print(f"All together: {seconds:.1f} s of one core (goal: {GOAL:.0f} s for {GROUPS:,} groups).")
    console.print(f"One group at a time, without numpy: {slowly:,.0f} s, {slowly / seconds:.0f} × as long.")
    sys.exit(seconds * GROUPS / groups >= GOAL)


if __name__ == "__main__":
    main()
