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
    # the latency that a failed send counts as
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
        # Who is out of the running, worked out again only when it may have changed: by a record, or by time.
        self._isolated: frozenset[str] = frozenset()
        self._unreachable: frozenset[str] = frozenset()
        self._settled_until = inf

    @abstractmethod
    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue: ...

    @abstractmethod
    def _learn(self, health: _Health, now: float, away: int, reachable: bool) -> None:
        """Take the isolation that a send earned into account."""

    def record(self, broker: str, latency_ms: float, *, failed: bool = False, reachable: bool = True) -> None:
        latency = self.back_off.failure if failed else latency_ms
        health = self._brokers.get(broker)
        if health is None:
            health = self._brokers.setdefault(broker, _Health())
        away = self.back_off.away(latency)
        health.latency = latency
        self._learn(health, self._clock(), away, reachable)
        if away or not reachable or broker in self._isolated or broker in self._unreachable:
            self._settled_until = -inf

    def forget(self, broker: str) -> None:
        if self._brokers.pop(broker, None):
            self._settled_until = -inf

    def _settle(self) -> None:
        """Bring ``_isolated`` and ``_unreachable`` up to date."""
        now = self._clock()
        if now < self._settled_until:
            return
        known = list(self._brokers.items())
        self._isolated = frozenset(broker for broker, health in known if now < health.until)
        self._unreachable = frozenset(broker for broker, health in known if not health.reachable)
        self._settled_until = min((health.until for _, health in known if now < health.until), default=inf)


class ClassicFaultAvoidance(_FaultAvoidance):
    """The preset ``classic``: the rule of the 4.x Java client."""

    back_off = CLASSIC

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        super().__init__(clock, random)
        self._picks = count(random.randrange(1 << 31))

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        self._settle()
        counter = self._counter(route)
        queue = None
        if last_broker is None:
            queue = route.next_without(counter, self._isolated)
        elif last_broker not in self._isolated:
            queue = route.next_without(counter, frozenset(route.by_broker) - {last_broker})
        if queue is None and (broker := self.pick_one_at_least()) is not None:
            queue = route.next_of(counter, broker)
            if queue is None:
                self.forget(broker)
        return queue or route.next(counter)

    def pick_one_at_least(self) -> str | None:
        """A broker of the better half of all that are known, in turn; None where none is known."""
        now = self._clock()

        def rank(known: tuple[str, _Health]) -> tuple[bool, float, float]:
            _, health = known
            return (now < health.until, health.latency, health.until)

        known = list(self._brokers.items())
        self._random.shuffle(known)  # equals take turns by chance: the sort is stable
        known.sort(key=rank)
        better = known[: max(1, len(known) // 2)]
        return better[next(self._picks) % len(better)][0] if better else None

    def _learn(self, health: _Health, now: float, away: int, reachable: bool) -> None:
        health.until = now + away


class V5FaultAvoidance(_FaultAvoidance):
    """The preset ``v5``: the rule of the 5.x Java client."""

    back_off = V5

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        self._settle()
        counter = self._counter(route)
        last = frozenset(() if last_broker is None else (last_broker,))
        return (
            route.next_without(counter, self._isolated | self._unreachable | last)
            or route.next_without(counter, self._unreachable | last)
            or route.next_without(counter, last)
            or route.next(counter)
        )

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
