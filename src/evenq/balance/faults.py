"""Latency fault avoidance: keep away from slow and failing brokers for a while.

======================== ==================================== ======================================
\\                        ``classic``                          ``v5`` (the 5.x Java client)
======================== ==================================== ======================================
a good send              ends an isolation                    leaves it to run out
first try                the first available queue            the first available and reachable one
retry                    stays with the last broker if it is  never the last broker
                         available
nothing available        a broker of the better half, by      any reachable broker, then any other
                         latency and end of isolation
no answer at all         a failure like others                out until a probe is answered
======================== ==================================== ======================================

Pure: the clock (milliseconds, from anywhere) and the randomness are passed in, probes are made by the client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import inf
from random import Random
from typing import ClassVar, Literal, TypeAlias

from evenq.balance.choosing import QueueChooser, RoundRobinChooser
from evenq.balance.routes import PublishRoute
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["BackOff", "ClassicFaultAvoidance", "FaultPreset", "V5FaultAvoidance", "queue_chooser"]

FaultPreset: TypeAlias = Literal["classic", "v5"]


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long a broker is left alone after a send of a certain latency, all in milliseconds.

    >>> CLASSIC.away(549), CLASSIC.away(550), CLASSIC.away(CLASSIC.failure)
    (0, 30000, 600000)
    """

    latencies: tuple[int, ...]
    durations: tuple[int, ...]
    # the latency whose duration a failed send gets
    failure: int

    def away(self, latency: float) -> int:
        reached = bisect_right(self.latencies, latency)
        return self.durations[reached - 1] if reached else 0


CLASSIC = BackOff(
    latencies=(50, 100, 550, 1000, 2000, 3000, 15_000),
    durations=(0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
    failure=30_000,
)
V5 = BackOff(
    latencies=(50, 100, 550, 1800, 3000, 5000, 15_000),
    durations=(0, 0, 2000, 5000, 6000, 10_000, 30_000),
    failure=10_000,
)

_PROBE_EVERY_MS = 2000
_NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Health:
    """What is known of one broker. It is isolated before ``until``; times are the clock's."""

    latency: float = 0
    until: float = -inf
    reachable: bool = True
    probe_at: float = -inf


class _FaultAvoidance(RoundRobinChooser, ABC):
    """What both presets share: the memory of how sends went, and who is isolated now."""

    back_off: ClassVar[BackOff]

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        super().__init__(random)
        self._clock = clock
        self._brokers: dict[str, _Health] = {}
        # Who is out (isolated or unreachable), worked out again only when it may have changed: by a record, or by time.
        self._out: frozenset[str] = frozenset()
        self._unreachable: frozenset[str] = frozenset()
        self._settled_until = inf

    @abstractmethod
    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue: ...

    @abstractmethod
    def _learn(self, health: _Health, now: float, away: int, reachable: bool) -> None:
        """Take the isolation that a send earned into account."""

    def record(self, broker: str, latency_ms: float, *, failed: bool = False, reachable: bool = True) -> None:
        health = self._brokers.get(broker)
        if health is None:
            health = self._brokers.setdefault(broker, _Health())
        away = self.back_off.away(latency_ms if reachable and not failed else self.back_off.failure)
        # brokers are ranked by what was measured, as in Java: only the isolation of a failure is a fixed one
        health.latency = latency_ms
        self._learn(health, self._clock(), away, reachable)
        if away or broker in self._out:
            self._settled_until = -inf

    def forget(self, broker: str) -> None:
        if self._brokers.pop(broker, None):
            self._settled_until = -inf

    def _settle(self) -> None:
        """Bring who is out up to date; first of all in every choice."""
        now = self._clock()
        if now >= self._settled_until:
            self._work_out(now)

    def _work_out(self, now: float) -> None:
        known = list(self._brokers.items())
        self._unreachable = frozenset(broker for broker, health in known if not health.reachable)
        self._out = self._unreachable.union(broker for broker, health in known if now < health.until)
        self._settled_until = min((health.until for _, health in known if now < health.until), default=inf)


class ClassicFaultAvoidance(_FaultAvoidance):
    """The preset ``classic``: the rule of the 4.x Java client."""

    back_off = CLASSIC

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        super().__init__(clock, random)
        # All known brokers, the best first, and whose turn it is; empty where it must be worked out again.
        self._ranking: list[str] = []
        self._turns = count(random.randrange(1 << 31))

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        self._settle()
        counter = self._counter(route)
        queue = None
        if last_broker is None:
            queue = route.next_without(counter, self._out)
        elif last_broker not in self._out:
            queue = route.next_without(counter, frozenset(route.by_broker) - {last_broker})
        if queue is None and (broker := self._pick_one_at_least()) is not None:
            queue = route.next_of(counter, broker)
            if queue is None:
                self.forget(broker)
        return queue or route.next(counter)

    def _pick_one_at_least(self) -> str | None:
        """A broker of the better half of all that are known, in turn; None where none is known."""
        ranking = self._ranking = self._ranking or self._rank()
        return ranking[next(self._turns) % max(1, len(ranking) // 2)] if ranking else None

    def _rank(self) -> list[str]:
        chance = self._random.random  # equals stand in an order of chance, as if shuffled before
        return [
            broker
            for *_, broker in sorted(
                (broker in self._out, health.latency, health.until, chance(), broker)
                for broker, health in list(self._brokers.items())
            )
        ]

    def _work_out(self, now: float) -> None:
        super()._work_out(now)
        self._ranking = []

    def _learn(self, health: _Health, now: float, away: int, reachable: bool) -> None:
        health.until = now + away
        self._ranking = []


class V5FaultAvoidance(_FaultAvoidance):
    """The preset ``v5``: the rule of the 5.x Java client."""

    back_off = V5

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        self._settle()
        counter = self._counter(route)
        for left_out in (self._out, self._unreachable, _NOBODY):
            queue = route.next_without(counter, left_out if last_broker is None else left_out | {last_broker})
            if queue is not None:
                return queue
        return route.next(counter)

    def due_probes(self) -> list[str]:
        now = self._clock()
        due = [broker for broker, health in self._brokers.items() if not health.reachable and now >= health.probe_at]
        for broker in due:
            self._brokers[broker].probe_at = now + _PROBE_EVERY_MS
        return due

    def probed(self, broker: str, *, answered: bool) -> None:
        if answered and (health := self._brokers.get(broker)):
            health.reachable = True
            self._settled_until = -inf

    def _learn(self, health: _Health, now: float, away: int, reachable: bool) -> None:
        if away:
            health.until = max(health.until, now + away)
        health.reachable = reachable


_PRESETS: dict[str, type[ClassicFaultAvoidance] | type[V5FaultAvoidance]] = {
    "classic": ClassicFaultAvoidance,
    "v5": V5FaultAvoidance,
}


def queue_chooser(faults: FaultPreset | bool | None, *, clock: Callable[[], float], random: Random) -> QueueChooser:
    """How a producer chooses: plain round robin, or with fault avoidance by a preset; True is ``classic``."""
    if faults is None or faults is False:
        return RoundRobinChooser(random)
    preset = _PRESETS.get("classic" if faults is True else faults)
    if preset is None:
        raise ArgumentError("send_latency_fault", faults, f"give False or one of {', '.join(_PRESETS)}")
    return preset(clock, random)
