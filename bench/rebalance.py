"""What a change of members costs: 2 → 3 → 2 → rolling restart under a steady load, Python members and Java members.

``python -m bench.rebalance [--brokers embedded real] [--rate 2000] [--seconds 5]``; each member is its own
process, which is there before the load begins. A queue that stays where it is has a longest gap after each change: half
of the time to the next one counts as the change, the other half, as long, as what is usual.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

import evenq
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost, RealCluster
from tests.realmq.clients import JavaMember

LISTENER = 0.002
QUEUES = 8
# who joins, in this order
JOINING = ("m1", "m2", "m3", "m1", "m3")

Queue = tuple[str, int]


@dataclass(frozen=True)
class Seen:
    """One message in the hands of one member."""

    at: float
    queue: Queue
    number: int
    member: str


class Crowd(Protocol):
    """Members that can be started and stopped properly."""

    def join(self, name: str) -> None: ...
    def leave(self, name: str) -> None: ...
    def seen(self) -> list[Seen]: ...


class PythonCrowd:
    """evenq members, a process each."""

    def __init__(
        self, namesrv: str, topic: str, group: str, strategy: str, folder: Path, stack: contextlib.ExitStack
    ) -> None:
        self._folder = folder
        # processes that are there and have not joined: starting one would take the machine from all others
        self._poised: defaultdict[str, list[subprocess.Popen[str]]] = defaultdict(list)
        self._running: dict[str, subprocess.Popen[str]] = {}
        for name in JOINING:
            command = [sys.executable, "-m", "bench.member", namesrv, group, topic, name, strategy, str(LISTENER)]
            member = stack.enter_context(
                subprocess.Popen(
                    [*command, str(folder / f"{name}.txt")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            assert member.stdout is not None
            member.stdout.readline()
            self._poised[name].append(member)

    def join(self, name: str) -> None:
        member = self._running[name] = self._poised[name].pop()
        assert member.stdin is not None
        member.stdin.write("join\n")
        member.stdin.flush()

    def leave(self, name: str) -> None:
        member = self._running.pop(name)
        member.send_signal(signal.SIGTERM)
        member.wait(30)

    def seen(self) -> list[Seen]:
        found = []
        for notes in self._folder.glob("*.txt"):
            for line in notes.read_text().splitlines():
                at, broker, queue, number = line.split()
                found.append(Seen(float(at), (broker, int(queue)), int(number), notes.stem))
        return found


class JavaCrowd:
    """Java push consumers, a JVM each."""

    def __init__(self, namesrv: str, topic: str, group: str, stack: contextlib.ExitStack) -> None:
        self._namesrv, self._topic, self._group = namesrv, topic, group
        self._hosts = [stack.enter_context(JavaHost()) for _ in JOINING]
        self._running: dict[str, JavaMember] = {}
        self._all: list[tuple[str, JavaMember]] = []

    def join(self, name: str) -> None:
        member = self._hosts.pop().push(
            self._namesrv, self._group, self._topic, instance=name, begin=Begin.FIRST, pause=LISTENER
        )
        self._running[name] = member
        self._all.append((name, member))

    def leave(self, name: str) -> None:
        self._running.pop(name).stop()

    def seen(self) -> list[Seen]:
        found = []
        for name, member in self._all:
            for received in member.messages:
                message = received.message
                store = (message.store_host, message.queue_id)
                found.append(Seen(received.at, store, int(message.body), name))
        return found


@dataclass
class Run:
    """Everything that one run leaves behind."""

    sent: int
    seen: list[Seen]
    # between two changes
    seconds: float
    # when a member was told to come or go
    changes: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.sent - len({each.number for each in self.seen})

    @property
    def twice(self) -> int:
        return sum(count - 1 for count in Counter(each.number for each in self.seen).values())

    def by_queue(self) -> dict[Queue, list[Seen]]:
        found: defaultdict[Queue, list[Seen]] = defaultdict(list)
        for each in sorted(self.seen, key=lambda each: each.at):
            found[each.queue].append(each)
        return found

    def pauses(self) -> tuple[list[float], list[float], list[float]]:
        """The gap at each hand-over of a queue; and for each queue that a change did not move its longest gap in the
        half of the time to the next change in which members settle, and in the other half, in which nothing happens."""
        moved: list[float] = []
        kept: list[float] = []
        usual: list[float] = []
        for messages in self.by_queue().values():
            for change in self.changes:
                middle, end = change + self.seconds / 2, change + self.seconds
                pairs = [(before, after) for before, after in pairwise(messages) if change <= after.at < end]
                hands = [after.at - before.at for before, after in pairs if before.member != after.member]
                if hands:
                    moved += hands
                else:
                    for found, from_, to in ((kept, change, middle), (usual, middle, end)):
                        gaps = [after.at - before.at for before, after in pairs if from_ <= after.at < to]
                        found.append(max(gaps, default=0.0))
        return moved, kept, usual


def play(cluster: AnyCluster, topic: str, crowd: Crowd, rate: int, seconds: float) -> Run:
    """The script of changes, with a producer that does not care."""
    stop = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        with evenq.Producer(cluster.namesrv) as producer:
            began = time.monotonic()
            # as few objects as can be: the garbage collector would stop the sending now and then
            pending: deque[Future[evenq.SendResult]] = deque()
            while not stop.is_set():
                due = int((time.monotonic() - began) * rate)
                numbers = range(sent, due)
                pending += [producer.send_async(evenq.Message(topic, b"%d" % number)) for number in numbers]
                sent = max(sent, due)
                while pending and pending[0].done():
                    pending.popleft().result()
                time.sleep(0.002)
            for future in pending:
                future.result()

    run = Run(0, [], seconds)
    members = ["m1", "m2"]
    for name in members:
        crowd.join(name)
    time.sleep(5)
    sender = threading.Thread(target=produce)
    sender.start()
    time.sleep(seconds)

    def change(act: Callable[[str], None], name: str) -> None:
        run.changes.append(time.time())
        act(name)
        time.sleep(seconds)

    change(crowd.join, "m3")
    change(crowd.leave, "m2")
    for name in ("m1", "m3"):
        change(crowd.leave, name)
        change(crowd.join, name)
    stop.set()
    sender.join()
    deadline = time.monotonic() + 20
    while len({each.number for each in crowd.seen()}) < sent and time.monotonic() < deadline:
        time.sleep(0.5)
    for name in ("m1", "m3"):
        crowd.leave(name)
    run.sent, run.seen = sent, crowd.seen()
    return run


def row(name: str, run: Run) -> list[str]:
    moved, kept, usual = run.pauses()
    still = [time for gaps in (kept, usual) for time in (_median(gaps), max(gaps, default=0.0))]
    return [
        name,
        f"{run.sent:,}",
        str(run.lost),
        str(run.twice),
        str(len(moved)),
        *(f"{time * 1000:,.0f}" for time in (_p99(moved), max(moved, default=0.0), *still)),
    ]


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else sum(times)


def _median(times: list[float]) -> float:
    return statistics.median(times) if times else 0.0


@contextlib.contextmanager
def brokers(kind: str) -> Iterator[AnyCluster]:
    with contextlib.ExitStack() as stack:
        if kind == "embedded":
            yield stack.enter_context(evenq.testing.cluster(brokers=2))
        else:
            yield stack.enter_context(RealCluster(brokers=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", nargs="*", default=["embedded", "real"], choices=["embedded", "real"])
    parser.add_argument("--strategies", nargs="*", default=["AVG", "STICKY"])
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5.0, help="between two changes")
    parser.add_argument("--no-java", action="store_true")
    options = parser.parse_args()
    table = Table(title=f"2 → 3 → 2 → rolling restart, {options.rate} messages a second, 2 ms listener; times in ms")
    for heading in (
        "", "sent", "lost", "twice", "moves", "moved p99", "max", "kept gap median", "max", "quiet gap median", "max",
    ):  # fmt: skip
        table.add_column(heading, justify="right" if heading else "left")
    for kind in options.brokers:
        with brokers(kind) as cluster:
            kinds = [*options.strategies, *(["Java AVG"] if not options.no_java else [])]
            for name in kinds:
                topic = f"rebalance-{name.replace(' ', '-')}"
                create_topic(cluster.namesrv, topic, queues=QUEUES)
                with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
                    crowd: Crowd
                    if name.startswith("Java"):
                        crowd = JavaCrowd(cluster.namesrv, topic, f"group-{topic}", stack)
                    else:
                        crowd = PythonCrowd(cluster.namesrv, topic, f"group-{topic}", name, Path(folder), stack)
                    table.add_row(
                        *row(f"{name}, {kind} broker", play(cluster, topic, crowd, options.rate, options.seconds))
                    )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
