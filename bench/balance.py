"""What balancing costs: dividing a large group, and choosing a queue for each message.

``python -m bench.balance``. Processor time, so that a busy machine does not count; the best of several rounds.
Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from timeit import repeat

from rich.console import Console
from rich.table import Table

from evenq.balance import (
    FaultPreset,
    HashSelector,
    MessageQueue,
    PublishRoute,
    QueueChooser,
    assign,
    queue_chooser,
    sorted_members,
    sorted_queues,
    strategy,
)
from evenq.model import Message

ROUNDS = 7
CALLS = 20_000

# what assign may take for 10,000 queues and 1,000 members, in milliseconds
ASSIGN_GOALS = {"AVG": 20.0, "AVG_BY_CIRCLE": 20.0, "CONSISTENT_HASH": 150.0}
# members that the slow way is tried with; it is linear in them
SAMPLE = 20

# what a choice over 64 queues on 8 brokers may take, in microseconds
PLAIN_GOAL, FAULTS_GOAL = 1.0, 3.0
BROKERS = [f"broker-{letter}" for letter in "abcdefgh"]
ROUTE = PublishRoute.of(MessageQueue("orders", broker, number) for broker in BROKERS for number in range(8))


def best(work: Callable[[], object], calls: int = 1) -> float:
    """Seconds of one call, in the best of some rounds."""
    return min(repeat(work, timer=time.process_time, number=calls, repeat=ROUNDS)) / calls


def best_in_a_task(work: Callable[[], object], calls: int) -> float:
    async def measure() -> float:
        return best(work, calls)

    return asyncio.run(measure())


def one_by_one(name: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> float:
    """Seconds that it takes to ask for every member's share by itself, sorting once."""
    by_queue, by_member = sorted_queues(queues), sorted_members(members)
    allocate = partial(strategy(name).allocate, "group", queues=by_queue, members=by_member)
    sample = by_member[:: len(by_member) // SAMPLE]
    sorting = best(lambda: (sorted_queues(queues), sorted_members(members)))
    return sorting + best(lambda: [allocate(member=member) for member in sample]) * len(members) / len(sample)


def dividing(console: Console) -> bool:
    """Measure ``assign``; gives whether all goals were met."""
    queues = [MessageQueue("orders", f"broker-{broker}", number) for broker in range(100) for number in range(100)]
    members = [f"10.0.{number >> 8}.{number & 255}@{number * 7919}" for number in range(1000)]
    random.Random(1).shuffle(queues)

    table = Table(title=f"assign: {len(queues):,} queues, {len(members):,} members, sorting included")
    table.add_column("strategy")
    for heading in ("ms", "goal", "member by member, ms", "ratio"):
        table.add_column(heading, justify="right")
    missed = False
    for name, goal in ASSIGN_GOALS.items():
        took = best(partial(assign, name, queues, members)) * 1000
        slowly = one_by_one(name, queues, members) * 1000
        missed |= took >= goal
        table.add_row(name, f"{took:.1f}", f"{goal:.0f}", f"{slowly:,.1f}", f"{slowly / took:,.1f} ×")
    console.print(table)
    return not missed


def chooser_with(preset: FaultPreset | bool, out: int) -> QueueChooser:
    """A chooser that knows all brokers, the first ``out`` of them as failed."""
    chooser = queue_chooser(preset, clock=lambda: time.monotonic() * 1000, random=random.Random(1))
    for number, broker in enumerate(BROKERS):
        chooser.record(broker, 3, failed=number < out)
    return chooser


def choices() -> dict[str, tuple[Callable[[], object], float]]:
    """What is measured, and what it may take."""
    plain = chooser_with(False, out=0)
    cases: dict[str, tuple[Callable[[], object], float]] = {
        "round robin": (partial(plain.choose, ROUTE), PLAIN_GOAL),
        "round robin, retry": (partial(plain.choose, ROUTE, "broker-a"), FAULTS_GOAL),
    }
    presets: tuple[FaultPreset, ...] = ("classic", "v5")
    for preset in presets:
        for out in (0, 3, 7, 8):
            chooser = chooser_with(preset, out)
            cases[f"{preset}, {out} of 8 brokers out"] = (partial(chooser.choose, ROUTE), FAULTS_GOAL)
        cases[f"{preset}, 3 of 8 out, retry"] = (
            partial(chooser_with(preset, 3).choose, ROUTE, "broker-a"),
            FAULTS_GOAL,
        )
    by_hash = partial(HashSelector().select, ROUTE.queues, Message("orders", b""), "order-123456")
    cases["hash selector, 12 letters"] = (by_hash, FAULTS_GOAL)
    return cases


def choosing(console: Console) -> bool:
    """Measure choices in a thread and in a task; gives whether all goals were met."""
    table = Table(title=f"A choice over {len(ROUTE.queues)} queues on {len(BROKERS)} brokers")
    table.add_column("rule")
    for heading in ("thread, µs", "task, µs", "goal", "of round robin"):
        table.add_column(heading, justify="right")
    missed, base = False, 0.0
    for name, (work, goal) in choices().items():
        thread, task = best(work, CALLS) * 1e6, best_in_a_task(work, CALLS) * 1e6
        base = base or thread
        missed |= max(thread, task) >= goal
        table.add_row(name, f"{thread:.2f}", f"{task:.2f}", f"{goal:.0f}", f"{thread / base:.1f} ×")
    console.print(table)
    return not missed


def main() -> None:
    console = Console()
    met = [dividing(console), choosing(console)]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
