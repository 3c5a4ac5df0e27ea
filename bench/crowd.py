"""A large group: 64 members and 1,024 queues; how long a join takes to settle, and how many requests it costs.

``python -m bench.crowd [--members 64] [--queues 1024] [--strategies AVG STICKY]``. All members live in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter

from rich.console import Console
from rich.table import Table

import evenq
from evenq.aio import PushConsumer
from evenq.client.net.connection import Connection
from evenq.protocol.codes import name_of
from evenq.protocol.view import MessageView
from tests.clusters import create_topic

__all__ = ["main"]


class Requests:
    """Counts what clients of this process ask."""

    def __init__(self) -> None:
        self.by_code: Counter[int] = Counter()
        post = Connection.post
        by_code = self.by_code

        def counting(self: Connection, command: evenq.protocol.Command, timeout: float) -> object:
            by_code[command.code] += 1
            return post(self, command, timeout)

        Connection.post = counting  # type: ignore[method-assign, assignment]


async def _nothing(messages: list[MessageView]) -> None: ...


async def _member(namesrv: str, topic: str, group: str, number: int, strategy: str) -> PushConsumer:
    member = PushConsumer(namesrv, group, strategy=strategy, instance=f"m{number:03d}", concurrency=1)
    member.subscribe(topic)
    await member.start(_nothing)
    return member


async def _settled(members: list[PushConsumer], queues: int) -> float:
    """Wait until every queue is held once and no two members are more than one queue apart."""
    began = time.monotonic()
    while True:
        counts = [len(member.queues) for member in members]
        if sum(counts) == queues and max(counts) - min(counts) <= 1:
            return time.monotonic() - began
        await asyncio.sleep(0.01)


async def join(namesrv: str, topic: str, strategy: str, size: int, queues: int) -> tuple[float, float, Counter[int]]:
    requests = Requests()
    group = f"group-{topic}"
    began = time.monotonic()
    members = await asyncio.gather(*(_member(namesrv, topic, group, n, strategy) for n in range(size - 1)))
    await _settled(members, queues)
    start = time.monotonic() - began
    await asyncio.sleep(1)
    requests.by_code.clear()
    began = time.monotonic()
    members.append(await _member(namesrv, topic, group, size, strategy))
    await _settled(members, queues)
    took = time.monotonic() - began
    cost = Counter(requests.by_code)
    await asyncio.gather(*(member.close() for member in members))
    return start, took, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--queues", type=int, default=1024)
    parser.add_argument("--strategies", nargs="*", default=["AVG", "STICKY"])
    options = parser.parse_args()
    table = Table(title=f"One more joins: {options.members} members, {options.queues} queues")
    for heading in ("strategy", "all start, s", "a join, s", "requests per member", "of which"):
        table.add_column(heading, justify="right" if "s" in heading else "left")
    with evenq.testing.cluster(brokers=2) as cluster:
        for strategy in options.strategies:
            topic = f"crowd-{strategy}"
            create_topic(cluster.namesrv, topic, queues=options.queues // 2)
            start, took, cost = asyncio.run(join(cluster.namesrv, topic, strategy, options.members, options.queues))
            each = sum(cost.values()) / options.members
            most = ", ".join(f"{name_of(code)} {count / options.members:.1f}" for code, count in cost.most_common(5))
            table.add_row(strategy, f"{start:.2f}", f"{took:.2f}", f"{each:.1f}", most)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
