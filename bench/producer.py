"""How fast messages are sent, next to the Java client on the same real broker in the same run.

| ``python -m bench.producer …`` | what it tells |
| --- | --- |
| a number, default 20000 | messages a second, so many a round: bodies of 100 bytes, one broker, 8 queues |
| ``memory`` | how the memory grows over a million messages |
| ``timeouts`` | how much longer than its timeout a send takes, at most |

The clients take turns, so that what else the machine does hits all of them: rates are the median of all rounds, ratios
the median of the ratios within a round. Java is warm. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from statistics import median

from rich.console import Console
from rich.table import Table

import evenq
from bench.target import Target, rest
from evenq import Message, SendResult
from evenq.protocol.codes import RequestCode
from tests.clusters import create_topic
from tests.realmq import JavaHost, JavaProducer, RealCluster

ROUNDS = 9
QUEUES = 8
TOPIC = "bench"
BODY = b"x" * 100
IN_FLIGHT = 1000
BATCH = 100
# batches on their way at a time
BATCHES = 16

# our rate over Java's, at least
GOALS = {"sync": 1.0, "async": 1.3, "batch": 2.0}
# milliseconds
LATE_GOAL = 50.0
# one at a time is slow: so many fewer messages tell as much
SHARES = {"sync": 10, "async": 1, "batch": 0.1}

# rounds that do not count
WARM_UP = 5

Run = Callable[[int], float]


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def java(producer: JavaProducer, mode: str, count: int) -> float:
    flood = producer.flood(TOPIC, count, mode=mode, batch=BATCH)  # type: ignore[arg-type]
    assert flood.failed == 0, flood.errors
    return flood.seconds


# the async surface


async def one_by_one(producer: evenq.aio.Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(Message(TOPIC, BODY))


async def many_at_once(producer: evenq.aio.Producer, count: int) -> None:
    """Keep a thousand on their way; look at each receipt."""
    flying: deque[asyncio.Future[SendResult]] = deque()
    for _ in range(count):
        if len(flying) >= IN_FLIGHT:
            assert (await flying.popleft()).ok
        flying.append(producer.send_async(Message(TOPIC, BODY)))
    for send in flying:
        assert (await send).ok


async def in_tasks(producer: evenq.aio.Producer, count: int) -> None:
    """A thousand tasks, each sending one message after the other."""

    async def worker() -> None:
        for _ in range(count // IN_FLIGHT):
            assert (await producer.send(Message(TOPIC, BODY))).ok

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def in_batches(producer: evenq.aio.Producer, count: int) -> None:
    todo = iter(range(0, count, BATCH))

    async def worker() -> None:
        for _ in todo:
            receipts = await producer.send_batch([Message(TOPIC, BODY) for _ in range(BATCH)])
            assert receipts[-1].ok

    await asyncio.gather(*(worker() for _ in range(BATCHES)))


def in_loop(
    namesrv: str, work: Callable[[evenq.aio.Producer, int], Awaitable[None]], count: int, *, linger: float = 0.0
) -> float:
    async def whole() -> float:
        async with evenq.aio.Producer(namesrv, linger=linger) as producer:
            await producer.send(Message(TOPIC, BODY))
            gc.collect()
            began = time.perf_counter()
            await work(producer, count)
            return time.perf_counter() - began

    return asyncio.run(whole())


# the sync surface


def sync_one_by_one(producer: evenq.Producer, count: int) -> None:
    for _ in range(count):
        producer.send(Message(TOPIC, BODY))


def sync_many_at_once(producer: evenq.Producer, count: int) -> None:
    flying: deque[Future[SendResult]] = deque()
    for _ in range(count):
        if len(flying) >= IN_FLIGHT:
            assert flying.popleft().result().ok
        flying.append(producer.send_async(Message(TOPIC, BODY)))
    for send in flying:
        assert send.result().ok


def sync_in_batches(producer: evenq.Producer, count: int) -> None:
    """Long lists, divided by the producer."""
    for _ in range(0, count, 100 * BATCH):
        receipts = producer.send_batch([Message(TOPIC, BODY) for _ in range(100 * BATCH)], split=True)
        assert receipts[-1].ok


def in_thread(namesrv: str, work: Callable[[evenq.Producer, int], None], count: int, *, linger: float = 0.0) -> float:
    with evenq.Producer(namesrv, linger=linger) as producer:
        producer.send(Message(TOPIC, BODY))
        return timed(partial(work, producer, count))


def contestants(namesrv: str, producer: JavaProducer) -> dict[str, dict[str, Run]]:
    """By mode, who takes part; Java is the first."""
    return {
        "sync": {
            "Java": partial(java, producer, "sync"),
            "evenq.aio, await send": partial(in_loop, namesrv, one_by_one),
            "evenq, send": partial(in_thread, namesrv, sync_one_by_one),
        },
        "async": {
            "Java, 1000 in flight": partial(java, producer, "async"),
            "evenq.aio, send_async": partial(in_loop, namesrv, many_at_once),
            "evenq.aio, 1000 tasks": partial(in_loop, namesrv, in_tasks),
            "evenq, send_async": partial(in_thread, namesrv, sync_many_at_once),
            "evenq.aio, linger 5 ms": partial(in_loop, namesrv, many_at_once, linger=0.005),
            "evenq, linger 5 ms": partial(in_thread, namesrv, sync_many_at_once, linger=0.005),
        },
        "batch": {
            f"Java, {BATCH} a batch": partial(java, producer, "batch"),
            f"evenq.aio, {BATCH} a batch": partial(in_loop, namesrv, in_batches),
            "evenq, split=True": partial(in_thread, namesrv, sync_in_batches),
        },
    }


def rested(broker: Target, run: Run, count: int) -> float:
    """Let somebody send to a broker that is done with what it was sent before."""
    rest(broker)
    return run(count)


def compare(count: int, console: Console) -> bool:
    with RealCluster(brokers=1, quick=False) as cluster, JavaHost(quick=False) as host:
        create_topic(cluster.namesrv, TOPIC, queues=QUEUES)
        producer = host.producer(cluster.namesrv)
        broker = Target(cluster.brokers["broker-a"], cluster.pids[-1])
        for mode in ("async", "sync", "batch"):
            # Java gets fast by doing it
            java(producer, mode, WARM_UP * int(count / SHARES[mode]))
        table = Table(title=f"Sending {len(BODY)}-byte messages to one real broker, {QUEUES} queues; {ROUNDS} rounds")
        for heading in ("", "messages/s", "of Java's", "goal"):
            table.add_column(heading, justify="right" if heading else "left")
        met = True
        for mode, runs in contestants(cluster.namesrv, producer).items():
            messages = int(count / SHARES[mode])
            # the first round does not count: the broker has to learn what each of them asks of it
            _, *rounds = (
                {name: messages / rested(broker, run, messages) for name, run in runs.items()}
                for _ in range(1 + ROUNDS)
            )
            first = next(iter(runs))
            for name in runs:
                ratio = median(rates[name] / rates[first] for rates in rounds)
                goal = None if name == first else GOALS[mode]
                met &= goal is None or ratio >= goal
                rate = median(rates[name] for rates in rounds)
                table.add_row(name, f"{rate:,.0f}", f"{ratio:.2f} ×", f"{goal:.1f}" if goal else "")
            table.add_section()
        console.print(table)
    return met


def memory(console: Console) -> bool:
    """Send a million messages; the process must not grow after the first tenth."""
    with RealCluster(brokers=1, quick=False) as cluster:
        create_topic(cluster.namesrv, TOPIC, queues=QUEUES)
        with evenq.Producer(cluster.namesrv) as producer:
            sizes = []
            for _ in range(10):
                sync_many_at_once(producer, 100_000)
                sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    console.print("MiB after each 100,000 messages:", ", ".join(f"{size:.1f}" for size in sizes))
    return sizes[-1] < sizes[0] * 1.05


def timeouts(console: Console) -> bool:
    """Send to a broker that never answers; a send may take 50 ms longer than its timeout."""
    late: list[float] = []

    async def one(producer: evenq.aio.Producer, timeout: float) -> None:
        began = time.perf_counter()
        with suppress(evenq.SendTimeout):
            await producer.send(Message(TOPIC, BODY), timeout=timeout)
        late.append((time.perf_counter() - began - timeout) * 1000)

    async def whole(namesrv: str) -> None:
        async with evenq.aio.Producer(namesrv) as producer:
            for timeout in (0.05, 0.1, 0.2, 0.4):
                await asyncio.gather(*(one(producer, timeout) for _ in range(100)))

    with evenq.testing.cluster(brokers=2) as cluster:
        create_topic(cluster.namesrv, TOPIC, queues=QUEUES)
        for broker in cluster.brokers.values():
            broker.faults.add(RequestCode.SEND_MESSAGE_V2, drop=True)
        asyncio.run(whole(cluster.namesrv))
    console.print(f"{len(late)} sends, longer than their timeouts by {median(late):.1f} ms, at most {max(late):.1f} ms")
    return max(late) < LATE_GOAL


def main() -> None:
    console = Console()
    argument = sys.argv[1] if len(sys.argv) > 1 else "20000"
    special = {"memory": memory, "timeouts": timeouts}.get(argument)
    met = special(console) if special else compare(int(argument), console)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
