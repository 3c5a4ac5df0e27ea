"""How fast the embedded broker serves, next to the real Java broker in the same run, with the same client.

``python -m bench.broker [rounds, default 5]``. Bodies of 100 bytes, 8 queues, one connection that does not wait for
answers. The brokers take turns, so that what else the machine does hits both: rates are the median of all rounds, and
ratios the median of the ratios within a round. The processor's time that a message costs each broker stands beside it.

``python -m bench.broker against CHECKOUT [rounds]`` does the same next to the embedded broker of another checkout.

``python -m bench.broker growth [millions, default 5]`` fills the embedded broker: what messages cost it then, next to
one that holds a million, its memory, and how long it takes to be ready again after a kill.

Each exits with 1 where a goal is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.load import batches, pulls, pump, singles
from bench.target import Target, rest
from tests.clusters import brokers, create_topic
from tests.realmq import RealCluster

SINGLES, BATCHES = "singles", "batches"
QUEUES = 8
SIZE = 100
PER_BATCH = 100
# single messages of a run; of what is cheaper, five times as many
COUNT = 60_000
MILLION = 1_000_000
# rounds that do not count: Java gets fast by doing it
WARM_UP = 2
# how often a full broker and one with less are compared
PAIRS = 15

# our rate over Java's, at least
GOALS = {
    "single sends": 0.5,
    "batches of 100": 1.0,
    "batches of 100, uneven": 1.0,
    "pulls of 32": 1.0,
    "pulls of 32, mixed": 1.0,
    "pulls of 4096": 1.0,
}
# our rate over that of another checkout, at least
NO_WORSE = 0.95
# what growth may lead to
MOST_MEMORY = 300
MOST_RESTART = 2.0
MOST_GROWTH = 1.1
MOST_IDLE = 120
MOST_START = 1.0


@dataclass(frozen=True, slots=True)
class Figure:
    """Messages a second, and microseconds of the broker's processor for each."""

    rate: float
    cpu: float


class Served:
    """``evenq serve`` as a process, of this checkout or of another one."""

    def __init__(self, data: Path, checkout: Path | None = None) -> None:
        start = "from evenq.cli import main; main()"
        ports = ["--namesrv-port", "0", "--broker-port", "0"]
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-c", start, "serve", "--data", str(data), *ports],
            stdout=subprocess.PIPE,
            text=True,
            env=None if checkout is None else os.environ | {"PYTHONPATH": str(checkout / "src")},
        )
        assert self._process.stdout is not None
        self.namesrv = self._process.stdout.readline().strip().partition("=")[2]
        self.seconds = time.perf_counter() - began
        self.target = Target(brokers(self.namesrv)["broker-a"], self._process.pid)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def embedded(checkout: Path | None = None) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="evenq-bench-", ignore_cleanup_errors=True) as data:
        served = Served(Path(data), checkout)
        try:
            yield served
        finally:
            served.kill()


def measured(target: Target, messages: int, work: Callable[[], float]) -> Figure:
    """What it costs a broker to serve ``messages`` messages; ``work`` gives the seconds.

    What the broker still does behind its answers is among the costs, and not in the way of what comes next.
    """
    before = target.cpu()
    seconds = work()
    rest(target)
    return Figure(messages / seconds, (target.cpu() - before) / messages * MILLION)


def send_singles(target: Target, messages: int) -> Figure:
    requests = singles(SINGLES, QUEUES, SIZE)
    return measured(target, messages, lambda: pump(target.address, requests, messages, 1000)[0])


def send_batches(target: Target, messages: int, spread: int = 0) -> Figure:
    requests = batches(BATCHES, QUEUES, SIZE, PER_BATCH, spread)
    return measured(target, messages, lambda: pump(target.address, requests, messages // PER_BATCH, 32)[0])


def pull(target: Target, topic: str, messages: int, most: int, given: int) -> Figure:
    """Read about so many messages with pulls that ask for ``most`` and are known to be given ``given``."""
    total = messages // (given * QUEUES) * QUEUES
    requests = pulls(topic, QUEUES, most, given)

    def work() -> float:
        seconds, tally = pump(target.address, requests, total, 64)
        assert tally.body >= total * given * SIZE, "the broker gave fewer messages than it should"
        return seconds

    return measured(target, total * given, work)


def compare(rounds: int, console: Console) -> bool:
    """Next to the Java broker."""
    with embedded() as served, RealCluster(brokers=1, quick=False) as real:
        for namesrv in (served.namesrv, real.namesrv):
            create_topics(namesrv)
        # Java's broker gives 32 whatever it is asked for
        pairs = take_turns(served.target, Target(real.brokers["broker-a"], real.pids[-1]), rounds, other_gives=32)
    return show(pairs, "Java", GOALS, rounds, console)


def compare_with(checkout: Path, rounds: int, console: Console) -> bool:
    """Next to the embedded broker of another checkout."""
    with embedded() as served, embedded(checkout) as other:
        for each in (served, other):
            create_topics(each.namesrv)
        pairs = take_turns(served.target, other.target, rounds, other_gives=4096)
    return show(pairs, "other", dict.fromkeys(GOALS, NO_WORSE), rounds, console)


def create_topics(namesrv: str) -> None:
    for topic in (SINGLES, BATCHES):
        create_topic(namesrv, topic, QUEUES)


Pairs = dict[str, list[tuple[Figure, Figure]]]


def take_turns(ours: Target, other: Target, rounds: int, *, other_gives: int) -> Pairs:
    """Let both brokers do the same, one after the other, again and again."""
    runs: dict[str, Callable[[Target], Figure]] = {
        "single sends": lambda target: send_singles(target, COUNT),
        "batches of 100": lambda target: send_batches(target, 15 * COUNT),
        # messages of 60 to 140 bytes
        "batches of 100, uneven": lambda target: send_batches(target, 15 * COUNT, 40),
        "pulls of 32": lambda target: pull(target, BATCHES, 5 * COUNT, 32, 32),
        "pulls of 32, mixed": lambda target: pull(target, SINGLES, 5 * COUNT, 32, 32),
        "pulls of 4096": lambda target: pull(target, BATCHES, 5 * COUNT, 4096, 4096 if target is ours else other_gives),
    }
    for target in (ours, other):
        send_singles(target, 5 * COUNT)
    found: Pairs = {name: [] for name in runs}
    for number in range(WARM_UP + rounds):
        for name, run in runs.items():
            pair = run(ours), run(other)
            if number >= WARM_UP:
                found[name].append(pair)
    return found


def show(found: Pairs, other: str, goals: Mapping[str, float], rounds: int, console: Console) -> bool:
    table = Table(title=f"{SIZE}-byte messages, {QUEUES} queues, one connection; {rounds} rounds")
    for heading in ("", "evenq/s", f"{other}/s", "ratio", "goal", "evenq µs", f"{other} µs"):
        table.add_column(heading, justify="right" if heading else "left")
    met = True
    for name, pairs in found.items():
        ratio = median(mine.rate / theirs.rate for mine, theirs in pairs)
        met &= ratio >= goals[name]
        rates = [f"{median(pair[side].rate for pair in pairs):,.0f}" for side in (0, 1)]
        costs = [f"{median(pair[side].cpu for pair in pairs):.1f}" for side in (0, 1)]
        table.add_row(name, *rates, f"{ratio:.2f} ×", f"{goals[name]:g}", *costs)
    console.print(table)
    return met


def fill(target: Target) -> None:
    """Send a million messages."""
    send_batches(target, MILLION - COUNT)
    send_singles(target, COUNT)


def costs(target: Target) -> tuple[float, float, float]:
    """What a broker's processor takes for messages: in batches, single ones, and pulled ones."""
    sent = send_batches(target, COUNT).cpu
    single = send_singles(target, COUNT // 5).cpu
    return sent, single, pull(target, BATCHES, 5 * COUNT, 32, 32).cpu


def growth(millions: int, console: Console) -> bool:
    """Fill the embedded broker, and ask of it what is asked of one with a million; then a kill and a start.

    The two take turns, so that what else the machine does hits both.
    """
    with tempfile.TemporaryDirectory(prefix="evenq-bench-", ignore_cleanup_errors=True) as data, embedded() as small:
        served = Served(Path(data))
        try:
            start, idle = served.seconds, settled_memory(served.target)
            memory = idle
            for each, size in ((small, 1), (served, millions)):
                create_topics(each.namesrv)
                for _ in range(size):
                    fill(each.target)
                    memory = max(memory, served.target.memory())
            pairs = [(costs(served.target), costs(small.target)) for _ in range(PAIRS)]
            memory = max(memory, served.target.memory())
            written = sum(path.stat().st_blocks * 512 for path in Path(data).rglob("commitlog/*"))
        finally:
            served.kill()
        again = Served(Path(data))
        again.kill()
    table = Table(title="µs of the processor for a message")
    for heading in ("", f"after {millions} million", "after 1 million", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    grown = []
    for place, name in enumerate(("batches of 100", "single sends", "pulls of 32")):
        sides = [median(pair[side][place] for pair in pairs) for side in (0, 1)]
        grown.append(median(many[place] / few[place] for many, few in pairs))
        table.add_row(name, *(f"{cost:.2f}" for cost in sides), f"{grown[-1]:.2f} ×")
    console.print(table)
    goals = [
        ("ready after, s", start, MOST_START),
        ("memory when idle, MiB", idle, MOST_IDLE),
        (f"memory after {millions} million messages, MiB", memory, MOST_MEMORY),
        (f"cost of a message after {millions} million over that after one", max(grown), MOST_GROWTH),
        (f"ready after a kill with {written / 1e9:.2f} GB, s", again.seconds, MOST_RESTART),
    ]
    for name, value, most in goals:
        console.print(f"{name}: {value:.2f}, at most {most:g}")
    return all(value <= most for _, value, most in goals)


def settled_memory(target: Target) -> float:
    """What a broker has when it has loaded all that it loads by itself."""
    sizes = [0.0]
    while len(sizes) < 3 or sizes[-1] != sizes[-3]:
        time.sleep(1)
        sizes.append(target.memory())
    return sizes[-1]


def main() -> None:
    console = Console()
    match sys.argv[1:]:
        case ["growth", *rest]:
            met = growth(int(rest[0]) if rest else 5, console)
        case ["against", checkout, *rest]:
            met = compare_with(Path(checkout).absolute(), int(rest[0]) if rest else 5, console)
        case rest:
            met = compare(int(rest[0]) if rest else 5, console)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
