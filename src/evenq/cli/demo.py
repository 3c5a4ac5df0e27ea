"""``evenq demo``: the whole thing on one machine, live, and a verdict that is computed from the data."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import evenq
from evenq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["demo"]

TOPIC, GROUP = "orders", "billing"
SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
}


@dataclass
class Crowd:
    """The consumers of the demo: who is there, and what each has consumed."""

    namesrv: str
    strategy: str
    members: dict[str, evenq.PushConsumer] = field(default_factory=dict)
    # (member, key) of every message that a handler finished
    consumed: list[tuple[str, str]] = field(default_factory=list)

    def join(self, name: str) -> None:
        def handler(messages: list[evenq.MessageView]) -> None:
            time.sleep(0.002)
            self.consumed.extend((name, message.keys[0]) for message in messages)

        member = evenq.PushConsumer(self.namesrv, GROUP, strategy=self.strategy, instance=name, begin="first")
        member.subscribe(TOPIC)
        member.start(handler)
        self.members[name] = member

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def holds(self) -> str:
        return ", ".join(f"{name} {len(member.queues)}" for name, member in sorted(self.members.items()))


@dataclass(frozen=True)
class Verdict:
    """What arrived somewhere, held against what was sent."""

    messages: int
    lost: int
    twice: int

    @classmethod
    def of(cls, sent: list[str], got: list[str]) -> Verdict:
        seen = Counter(got)
        return cls(len(got), len(set(sent) - set(seen)), sum(seen.values()) - len(seen))

    @property
    def clean(self) -> bool:
        return not (self.lost or self.twice)


def _table(sent: int, verdicts: dict[str, Verdict]) -> Table:
    table = Table(title="What came of it, counted from the data")
    for heading in ("", "messages", "lost", "twice"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("sent", f"{sent:,}", "", "")
    for where, verdict in verdicts.items():
        table.add_row(where, f"{verdict.messages:,}", f"{verdict.lost:,}", f"{verdict.twice:,}")
    return table


def demo(
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 500,
    seconds: Annotated[int, typer.Option(min=8, help="How long to send.")] = 20,
    strategy: Annotated[str, typer.Option(help="How the group divides the queues.")] = "AVG",
    out: Annotated[Path, typer.Option(help="Where Parquet files and the checkpoint go; emptied first.")] = Path(
        "demo-out"
    ),
    spark: Annotated[bool, typer.Option(help="Write the topic to Parquet with a Spark stream.")] = True,
) -> None:
    """Two embedded brokers, a producer, consumers that come and go, a Spark stream; and at the end a count."""
    console = Console()
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {text}", highlight=False)

    _empty(out)
    with ThreadPoolExecutor(1) as background, cluster(brokers=2) as brokers:
        say(f"name server {brokers.namesrv}, brokers {', '.join(brokers.brokers)}")
        stream: Future[_Stream] | None = background.submit(_Stream.start, brokers.namesrv, out) if spark else None
        with evenq.Admin(brokers.namesrv) as admin:
            admin.create_topic(TOPIC, queues=4)
        crowd = Crowd(brokers.namesrv, strategy)
        sent = _play(crowd, rate, seconds, say)
        _wait_until(lambda: len({key for _, key in crowd.consumed}) >= len(sent), 20)
        for name in list(crowd.members):
            crowd.leave(name)
        say("everybody has left")
        verdicts = {"consumed by the group": Verdict.of(sent, [key for _, key in crowd.consumed])}
        if stream is not None:
            parquet = stream.result().finish()
            say(f"Spark has written {len(parquet):,} rows to {out / 'orders.parquet'}")
            verdicts["in Parquet, by Spark"] = Verdict.of(sent, parquet)
    console.print(_table(len(sent), verdicts))
    shares = Counter(name for name, _ in crowd.consumed)
    console.print("by member: " + ", ".join(f"{name} {count:,}" for name, count in sorted(shares.items())))
    if not all(verdict.clean for verdict in verdicts.values()):
        console.print("[red]something was lost or came twice[/]")
        raise typer.Exit(1)
    console.print("[green]nothing was lost, nothing came twice[/]")


def _play(crowd: Crowd, rate: int, seconds: int, say: Callable[[str], None]) -> list[str]:
    """Send at a steady rate while members come and go; gives the keys of what was stored."""
    for name in ("c1", "c2", "c3"):
        crowd.join(name)
    script = [(1 / 3, "c4 joins", lambda: crowd.join("c4")), (2 / 3, "c2 leaves", lambda: crowd.leave("c2"))]
    say(f"c1, c2 and c3 join; sending {rate} messages a second for {seconds} s")
    futures: list[Future[evenq.SendResult]] = []
    with evenq.Producer(crowd.namesrv, group="shop") as producer:
        start = told = time.monotonic()
        for number in range(rate * seconds):
            now = time.monotonic() - start
            if script and now >= script[0][0] * seconds:
                _, what, act = script.pop(0)
                say(what)
                threading.Thread(target=act).start()
            if start + now - told >= 2:
                told = start + now
                say(f"sent {number:,}, consumed {len(crowd.consumed):,}; queues held: {crowd.holds()}")
            ahead = number / rate - now
            if ahead > 0:
                time.sleep(ahead)
            body = json.dumps({"order": number, "total": number % 97}).encode()
            futures.append(producer.send_async(evenq.Message(TOPIC, body, keys=[f"o-{number}"])))
        for future in futures:
            future.result()
    say(f"sent {len(futures):,}; queues held: {crowd.holds()}")
    return [f"o-{number}" for number in range(len(futures))]


@dataclass
class _Stream:
    """A Spark streaming query that writes the topic to Parquet."""

    session: SparkSession
    query: StreamingQuery
    path: Path

    @classmethod
    def start(cls, namesrv: str, out: Path) -> _Stream:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[2]").appName("evenq demo")
        for key, value in SPARK.items():
            builder = builder.config(key, value)
        with _stderr_to(out / "spark.log"):
            session = builder.getOrCreate()
        path = out / "orders.parquet"
        rows = session.readStream.format("rocketmq").option("namesrv", namesrv).option("subscribe", TOPIC)
        query = (
            rows.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("parquet")
            .option("path", str(path))
            .option("checkpointLocation", str(out / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        return cls(session, query, path)

    def finish(self) -> list[str]:
        """Wait until everything that was sent is written; gives the keys that are in the files."""
        self.query.processAllAvailable()
        self.query.stop()
        keys = [row.keys_ for row in self.session.read.parquet(str(self.path)).selectExpr("keys AS keys_").collect()]
        self.session.stop()
        return keys


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let what is started meanwhile (the JVM, for good) write its errors to a file instead of across the screen."""
    own = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _empty(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else."""
    if out.exists() and any(out.iterdir()) and not (out / "checkpoint").exists():
        raise evenq.ArgumentError("--out", str(out), "it holds something that no demo wrote: give another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
