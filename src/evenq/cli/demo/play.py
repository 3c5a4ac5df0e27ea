"""The plot of the demo: who comes, who goes, what is broken, and what is left to count."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from evenq.balance import strategy as known_strategy
from evenq.cli.demo import ending, topic
from evenq.cli.demo.crowd import Crowd
from evenq.cli.demo.orders import Orders
from evenq.cli.demo.screen import Row, Screen, State, short
from evenq.cli.demo.stream import NAME, Stream
from evenq.cli.demo.verdict import judge
from evenq.cli.demo.watching import Watcher
from evenq.errors import ArgumentError
from evenq.testing import EmbeddedCluster, cluster

__all__ = ["Setting", "play"]

TOPIC, GROUP, QUEUES = "orders", "billing", 4
MARK = ".evenq-demo"
# Seconds for a change to settle, and for the group to catch up at the end.
SETTLE, CATCH_UP = 20.0, 60.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How large the demo is, and where what is left of it goes."""

    rate: int
    seconds: int
    strategy: str
    out: Path
    spark: bool


def play(setting: Setting) -> bool:
    """Play it all and tell what came of it; whether everything is as it should be."""
    known_strategy(setting.strategy)
    _empty(setting.out)
    began = time.monotonic()
    console = Console(highlight=False)
    with ThreadPoolExecutor(1) as background, cluster(brokers=2) as brokers:
        topic.create(brokers.namesrv, TOPIC, QUEUES)
        stream: Future[Stream] | None = None
        if setting.spark:
            parts = (brokers.namesrv, TOPIC, GROUP, setting.strategy, setting.out)
            stream = background.submit(Stream.start, *parts)
        try:
            with Crowd(brokers.namesrv, GROUP, TOPIC, setting.strategy, setting.out / "members") as crowd:
                stage = Stage(setting, brokers, crowd, stream, console)
                orders = stage.perform()
                stored = topic.save(topic.read(brokers.namesrv, TOPIC), setting.out / "topic.parquet")
                consumed = crowd.consumed()
                audited = None
                if stream is not None:
                    consumed += stream.result().consumed()
                    audited = ending.audit(stream.result().spark, brokers.namesrv, TOPIC, GROUP, setting.out)
        finally:
            if stream is not None and not stream.cancel() and stream.exception() is None:
                stream.result().spark.stop()
    verdict = judge(orders.confirmed(), stored, consumed, crowd.killed, orders.failed())
    ending.tell(console, verdict, crowd.killed, audited, setting.out, stage.watcher.moves, time.monotonic() - began)
    return verdict.clean


class Stage:
    """Everybody in the demo, and what they do one after the other."""

    def __init__(
        self,
        setting: Setting,
        brokers: EmbeddedCluster,
        crowd: Crowd,
        stream: Future[Stream] | None,
        console: Console,
    ) -> None:
        self._setting = setting
        self._brokers = brokers
        self._crowd = crowd
        self._stream = stream
        self.watcher = Watcher(brokers, GROUP, TOPIC)
        self._orders = Orders(brokers.namesrv, TOPIC, setting.rate)
        self._screen = Screen(self._state, console=console)
        self._looking = threading.Lock()

    def perform(self) -> Orders:
        """Gives the orders that were sent."""
        crowd, say = self._crowd, self._screen.say
        pause = self._setting.seconds / 6
        with self._screen, self._orders:
            say(f"name server {self._brokers.namesrv}, brokers {', '.join(self._brokers.brokers)}, topic {TOPIC}")
            say(f"{self._setting.rate} orders a second; c1 and c2 join the group {GROUP}")
            crowd.join("c1")
            crowd.join("c2")
            self._settle()
            if self._stream is not None:
                say("a Spark query starts, to share the group and write Parquet")
                self._stream.result()
                self._settle()
            time.sleep(pause)
            for name in ("c3", "c4"):
                say(f"{name} joins")
                crowd.join(name)
                self._settle()
                time.sleep(pause)
            self._kill("c2")
            time.sleep(pause)
            self._cut("broker-b")
            time.sleep(pause)
            say("c1 leaves")
            crowd.leave("c1")
            self._settle()
            time.sleep(pause)
            self._orders.stop()
            say(f"no more orders: {self._orders.sent:,} were sent")
            self._wait(lambda: not self.watcher.last.behind, CATCH_UP)
            say(f"the group has caught up, {self.watcher.last.behind:,} behind; everybody leaves")
            crowd.leave_all()
            if self._stream is not None:
                self._stream.result().stop()
        self._orders.save(self._setting.out / "sent.jsonl")
        return self._orders

    def _kill(self, name: str) -> None:
        self._look()
        last = self.watcher.last
        held = last.held_by(name)
        committed = {(queue.broker, queue.queue_id): last.committed[queue] for queue in held}
        process = self._crowd.kill(name, committed)
        self._screen.say(f"{name} is killed (SIGKILL to process {process}); it held {' '.join(map(short, held))}")
        began = time.monotonic()
        settled = self._settle()
        seconds = f"{time.monotonic() - began:.1f} s after the kill"
        self._screen.say(
            f"its queues have new holders, {seconds}" if settled else f"the group is still uneven {seconds}"
        )

    def _cut(self, broker: str) -> None:
        count = topic.cut(self._brokers, broker)
        self._screen.say(f"all {count} connections of {broker} are cut")
        self._settle()

    def _settle(self) -> bool:
        """Wait until all queues are held, and everybody who is there holds some; whether it came to that."""

        def settled() -> bool:
            last = self.watcher.last
            there = {*self._crowd.running, *([NAME] if self._streaming else [])}
            return set(last.holders.values()) == there and len(last.holders) == len(last.lag)

        return self._wait(settled, SETTLE)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look()
            if condition():
                return True
            if self._streaming and self._stream is not None:
                self._stream.result().check()
            time.sleep(0.05)
        return False

    @property
    def _streaming(self) -> bool:
        return self._stream is not None and self._stream.done()

    def _look(self) -> None:
        with self._looking:
            moved = self.watcher.look(set(self._crowd.names))
        if moved:
            listed = ", ".join(f"{short(queue)} {before} → {after}" for queue, before, after in moved)
            self._screen.say(f"moved: {listed}")

    def _state(self) -> State:
        self._look()
        last = self.watcher.last
        crowd = self._crowd
        fate = dict.fromkeys(crowd.killed, "killed") | dict.fromkeys(crowd.left, "left")
        rows = [
            Row(
                name,
                fate.get(name, "in" if name in last.members else "coming"),
                last.held_by(name),
                count,
                last.lag_of(name),
            )
            for name, count in crowd.counts().items()
        ]
        if self._stream is not None:
            there = NAME in last.members
            rows.append(Row(NAME, "in" if there else "coming", last.held_by(NAME), self._rows(), last.lag_of(NAME)))
        return State(rows, self._orders.sent, last.stored, last.behind, self.watcher.moves)

    def _rows(self) -> int:
        return self._stream.result().rows() if self._stream is not None and self._streaming else 0


def _empty(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else."""
    if out.exists() and any(out.iterdir()) and not any((out / name).exists() for name in (MARK, "checkpoint")):
        raise ArgumentError("--out", str(out), "it holds something that no demo wrote: give another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()
