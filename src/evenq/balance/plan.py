"""The rebalance plan: what a member must do to get from the queues it holds to the queues it should hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evenq.balance.ordering import sorted_queues
from evenq.model import MessageQueue

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Queues to lose, keep and gain, each in Java's order. True where there is something to do."""

    lose: tuple[MessageQueue, ...] = ()
    keep: tuple[MessageQueue, ...] = ()
    gain: tuple[MessageQueue, ...] = ()

    @property
    def moved(self) -> int:
        """How many queues change hands."""
        return len(self.lose) + len(self.gain)

    def __bool__(self) -> bool:
        return bool(self.lose or self.gain)

    def __str__(self) -> str:
        """One line for a log: ``lose orders@broker-a:0, keep 3, gain orders@broker-b:1 orders@broker-b:2``."""
        return f"lose {_names(self.lose)}, keep {len(self.keep)}, gain {_names(self.gain)}"


def plan(held: Iterable[MessageQueue], target: Iterable[MessageQueue]) -> Plan:
    """What turns ``held`` into ``target``.

    >>> a, b, c = (MessageQueue("orders", "broker-a", n) for n in range(3))
    >>> print(plan(held=[a, b], target=[b, c]))
    lose orders@broker-a:0, keep 1, gain orders@broker-a:2
    """
    have, want = set(held), set(target)
    return Plan(
        lose=tuple(sorted_queues(have - want)),
        keep=tuple(sorted_queues(have & want)),
        gain=tuple(sorted_queues(want - have)),
    )


def _names(queues: tuple[MessageQueue, ...]) -> str:
    return " ".join(f"{queue.topic}@{queue.broker}:{queue.queue_id}" for queue in queues) or "none"
