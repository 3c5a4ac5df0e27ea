"""The producer's choice of a queue where no selector makes it: round robin, and what a retry avoids."""

from __future__ import annotations

from random import Random
from typing import Protocol

from evenq.balance.roundrobin import Counter, RoundRobin
from evenq.balance.routes import PublishRoute
from evenq.model import MessageQueue

__all__ = ["QueueChooser", "RoundRobinChooser"]


class QueueChooser(Protocol):
    """All that a producer needs to know about choosing, whatever is switched on."""

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        """The queue for the next try; ``last_broker`` is the one that this message has just failed on."""
        ...

    def record(self, broker: str, latency_ms: float, *, failed: bool = False, reachable: bool = True) -> None:
        """Learn how a try went. ``reachable`` is false where the broker gave no answer at all."""
        ...

    def due_probes(self) -> list[str]:
        """Brokers to be asked now whether they answer; each is named again only some seconds later."""
        ...

    def probed(self, broker: str, *, answered: bool) -> None:
        """Learn what came of a probe."""
        ...

    def forget(self, broker: str) -> None:
        """Drop what is known of a broker that has gone for good."""
        ...


class RoundRobinChooser:
    """Round robin; a retry skips every queue of the broker that failed last, if that leaves any."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._round_robins: dict[str, RoundRobin] = {}

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        counter = self._counter(route)
        if last_broker is None:
            return route.next(counter)
        return route.next_without(counter, frozenset((last_broker,))) or route.next(counter)

    def record(self, broker: str, latency_ms: float, *, failed: bool = False, reachable: bool = True) -> None:
        """Nothing is learnt."""

    def due_probes(self) -> list[str]:
        return []

    def probed(self, broker: str, *, answered: bool) -> None:
        """Nothing is learnt."""

    def forget(self, broker: str) -> None:
        """Nothing is known."""

    def _counter(self, route: PublishRoute) -> Counter:
        # By topic: one counter over two topics that take turns would see only every other queue of each.
        round_robin = self._round_robins.get(route.topic)
        if round_robin is None:
            round_robin = self._round_robins.setdefault(route.topic, RoundRobin(self._random))
        return round_robin.counter()
