"""How fast consumers are, next to Java's on the same real broker in the same run, and how soon messages arrive.

``python -m bench.consumer [--messages 300000] [--rounds 3] [--seconds 6]``. Bodies of 100 bytes, 8 queues on one
broker. Each consumer reads the whole topic as a new group and adds up the sizes of the bodies; Java and Python take
turns, and each ratio is that of a round's neighbours, the median of the rounds. The first round warms up Java's
compiler and does not count. Rates are of this machine as busy as it was: compare within one run only.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

import evenq
from bench.filling import fill
from evenq.model import Begin
from tests.clusters import create_topic
from tests.realmq import JavaHost, RealCluster
from tests.waiting import wait_until

TOPIC = "bench"
QUEUES = 8
SIZE = 100
RATE = 500

# ours -> (Java's beside it, what the ratio should be at least)
GOALS = {
    "poll_arrow": ("Java lite pull", 2.5),
    "poll": ("Java lite pull", 1.0),
    "push, batches of 32": ("Java push", 1.0),
    "push, a coroutine": ("Java push", 1.0),
}


def group() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


class Counted:
    """Counts from many threads; the rate is that from the first batch on, which does not count itself."""

    def __init__(self, messages: int) -> None:
        self._lock = threading.Lock()
        self._messages = messages
        self._count = self._first = self._bytes = 0
        self._began = self._ended = 0.0
        self.done = threading.Event()

    def add(self, count: int, size: int) -> None:
        with self._lock:
            now = time.perf_counter()
            self._bytes += size
            if not self._count:
                self._began, self._first = now, count
            self._count += count
            if self._count >= self._messages and not self.done.is_set():
                self._ended = now
                self.done.set()

    @property
    def rate(self) -> float:
        assert self._bytes == self._messages * SIZE, "some bodies are not what was sent"
        return (self._messages - self._first) / (self._ended - self._began)


def poll(namesrv: str, messages: int, take: Callable[[evenq.LitePullConsumer], tuple[int, int]]) -> float:
    counted = Counted(messages)
    with evenq.LitePullConsumer(namesrv, group(), begin="first") as consumer:
        consumer.subscribe(TOPIC)
        while not counted.done.is_set():
            counted.add(*take(consumer))
    return counted.rate


def take_objects(consumer: evenq.LitePullConsumer) -> tuple[int, int]:
    return sizes(consumer.poll(5))


def take_columns(consumer: evenq.LitePullConsumer) -> tuple[int, int]:
    rows = consumer.poll_arrow(5)
    return rows.num_rows, pc.sum(pc.binary_length(rows["value"])).as_py() or 0


def sizes(batch: Sequence[evenq.MessageView]) -> tuple[int, int]:
    return len(batch), sum([len(message.body) for message in batch])


def push(namesrv: str, messages: int) -> float:
    counted = Counted(messages)
    with evenq.PushConsumer(namesrv, group(), begin="first", batch=32) as consumer:
        consumer.subscribe(TOPIC)
        consumer.start(lambda batch: counted.add(*sizes(batch)))
        counted.done.wait()
    return counted.rate


def push_coroutine(namesrv: str, messages: int) -> float:
    counted = Counted(messages)

    async def handler(batch: list[evenq.MessageView]) -> None:
        counted.add(*sizes(batch))

    async def scenario() -> None:
        async with evenq.aio.PushConsumer(namesrv, group(), begin="first", batch=32) as consumer:
            consumer.subscribe(TOPIC)
            await consumer.start(handler)
            await asyncio.to_thread(counted.done.wait)

    asyncio.run(scenario())
    return counted.rate


def java(host: JavaHost, kind: str, namesrv: str, messages: int) -> float:
    """Java's consumer with pulls of 32, which is the most that the broker gives; its listener counts as ours do."""
    make = host.push if kind == "push" else host.lite_pull
    member = make(namesrv, group(), TOPIC, begin=Begin.FIRST, batch=32, count_only=True)
    first = wait_until(lambda: total if (total := member.total()).count else None, "the first message")
    last = wait_until(lambda: total if (total := member.total()).count >= messages else None, "all", 300)
    member.stop()
    assert last.bytes == messages * SIZE, "some bodies are not what was sent"
    return (messages - first.count) / (last.last - first.last)


def speed(cluster: RealCluster, host: JavaHost, messages: int, rounds: int) -> dict[str, list[float]]:
    namesrv = cluster.namesrv
    measures: dict[str, Callable[[], float]] = {
        "poll_arrow": lambda: poll(namesrv, messages, take_columns),
        "Java lite pull": lambda: java(host, "lite pull", namesrv, messages),
        "poll": lambda: poll(namesrv, messages, take_objects),
        "push, batches of 32": lambda: push(namesrv, messages),
        "Java push": lambda: java(host, "push", namesrv, messages),
        "push, a coroutine": lambda: push_coroutine(namesrv, messages),
    }
    for measure in measures.values():
        measure()
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def print_speed(console: Console, found: dict[str, list[float]]) -> bool:
    table = Table(title="Messages a second, 100-byte bodies, 8 queues, real broker")
    table.add_column("consumer")
    for heading in ("median", "best", "of Java's", "goal"):
        table.add_column(heading, justify="right")
    met = True
    for name, rates in found.items():
        row = [name, f"{statistics.median(rates):,.0f}", f"{max(rates):,.0f}"]
        if name in GOALS:
            beside, goal = GOALS[name]
            ratio = statistics.median(own / other for own, other in zip(rates, found[beside], strict=True))
            met &= ratio >= goal
            row += [f"{ratio:.2f} ×", f"{goal}"]
        table.add_row(*row)
    console.print(table)
    return met


def send_steadily(namesrv: str, topic: str, seconds: float) -> dict[int, float]:
    """Send numbers at a steady rate; gives when each was about to be sent."""
    sent: dict[int, float] = {}
    with evenq.Producer(namesrv) as producer:
        began = time.time()
        for number in range(round(RATE * seconds)):
            time.sleep(max(0.0, began + number / RATE - time.time()))
            sent[number] = time.time()
            producer.send_async(evenq.Message(topic, b"%d" % number))
    return sent


def java_latency(host: JavaHost, apart: Executor, namesrv: str, topic: str, seconds: float) -> list[float]:
    member = host.push(namesrv, group(), topic)
    member.wait_ready(QUEUES)
    sent = apart.submit(send_steadily, namesrv, topic, seconds).result()
    seen = {int(each.message.body): each.at for each in member.wait_for(len(sent))}
    member.stop()
    return settled(sent, seen)


def python_latency(apart: Executor, namesrv: str, topic: str, seconds: float, *, coroutine: bool) -> list[float]:
    seen: dict[int, float] = {}

    def handler(messages: list[evenq.MessageView]) -> None:
        seen[int(messages[0].body)] = time.time()

    async def in_the_loop(messages: list[evenq.MessageView]) -> None:
        handler(messages)

    with evenq.PushConsumer(namesrv, group()) as consumer:
        consumer.subscribe(topic)
        consumer.start(in_the_loop if coroutine else handler)
        wait_until(lambda: len(consumer.queues) == QUEUES, "all queues")
        sent = apart.submit(send_steadily, namesrv, topic, seconds).result()
        wait_until(lambda: len(seen) == len(sent), "all messages", 60)
    return settled(sent, seen)


def settled(sent: dict[int, float], seen: dict[int, float]) -> list[float]:
    """How long each took, without those of the first second: everybody finds their pace then."""
    return [seen[number] - at for number, at in sent.items() if number >= RATE]


def latency(cluster: RealCluster, host: JavaHost, seconds: float) -> dict[str, list[float]]:
    """From just before the send to the listener, one consumer after the other, twice: they must not disturb each other.

    The producer is ours each time, in a process of its own.
    """
    found: dict[str, list[float]] = {"Java push": [], "push": [], "push, a coroutine": []}
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        for _ in range(2):
            for name in found:
                topic = f"latency-{uuid.uuid4().hex[:8]}"
                create_topic(cluster.namesrv, topic, queues=QUEUES)
                if name == "Java push":
                    found[name] += java_latency(host, apart, cluster.namesrv, topic, seconds)
                else:
                    coroutine = name != "push"
                    found[name] += python_latency(apart, cluster.namesrv, topic, seconds, coroutine=coroutine)
    return found


def print_latency(console: Console, found: dict[str, list[float]]) -> bool:
    table = Table(title=f"From send to listener at {RATE} messages a second, milliseconds")
    table.add_column("consumer")
    for heading in ("median", "p90", "p99"):
        table.add_column(heading, justify="right")
    for name, times in found.items():
        cuts = statistics.quantiles(times, n=100)
        table.add_row(name, *(f"{cuts[at - 1] * 1000:.2f}" for at in (50, 90, 99)))
    console.print(table)
    medians = {name: statistics.median(times) for name, times in found.items()}
    return max(medians.values()) == medians["Java push"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of the measurement of latency")
    arguments = parser.parse_args()
    console = Console()
    with RealCluster(brokers=1, quick=False) as cluster, JavaHost(quick=False) as host:
        create_topic(cluster.namesrv, TOPIC, queues=QUEUES)
        fill(cluster.namesrv, TOPIC, arguments.messages, SIZE)
        met = [print_speed(console, speed(cluster, host, arguments.messages, arguments.rounds))]
        met.append(print_latency(console, latency(cluster, host, arguments.seconds)))
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
