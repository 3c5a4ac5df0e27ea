"""How much traffic the queues of simulated groups get: as uneven as that of queues which were measured.

A group gets the traffic of one measured topic, chosen by chance. Where it has as many queues as that topic, each of the
topic's queues stands for one of its own, in any order; where it has more or fewer, the topic's queues are stretched or
thinned out evenly from the quietest to the busiest, so that what was rare stays rare and what was hot stays hot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evenq.balance.groups_draw import Array
from evenq.errors import ArgumentError

__all__ = ["Traffic", "Unit"]

Unit = Literal["messages", "bytes"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """``topics``: for each measured topic what its queues get, as multiples of their mean, ascending."""

    topics: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, object]], unit: Unit = "messages") -> Traffic:
        """From rows with ``topic``, ``broker``, ``queue_id`` and what is counted, as an audit has them.

        >>> Traffic.of([{"topic": "t", "messages": 30}, {"topic": "t", "messages": 10}])
        Traffic(topics=((0.5, 1.5),))
        """
        by_topic: dict[str, list[float]] = {}
        for row in rows:
            amount = row.get(unit)
            if not isinstance(amount, int | float) or amount < 0 or "topic" not in row:
                raise ArgumentError(
                    "traffic", dict(row), f"each row needs a topic and its {unit}, as an audit writes them"
                )
            by_topic.setdefault(str(row["topic"]), []).append(float(amount))
        found = [_relative(amounts) for _, amounts in sorted(by_topic.items()) if sum(amounts)]
        if not found:
            raise ArgumentError("traffic", sorted(by_topic), f"no topic in it has {unit}: audit one that has")
        return cls(tuple(found))

    def draw(self, queues: int, topics: int, groups: int, chance: np.random.Generator) -> Array:
        """[queue of all topics, group] → its traffic, as a multiple of the mean."""
        return np.concatenate([self._topic(queues, groups, chance) for _ in range(topics)])

    def _topic(self, queues: int, groups: int, chance: np.random.Generator) -> Array:
        found = np.empty((queues, groups), np.float32)
        chosen = chance.integers(len(self.topics), size=groups)
        # one place in each of as many equal parts of the measured queues as there are queues
        places = (np.arange(queues)[:, None] + chance.random((queues, groups), np.float32)) / queues
        for number, measured in enumerate(self.topics):
            here = np.flatnonzero(chosen == number)
            levels = np.asarray(measured, np.float32)
            at = np.minimum((places[:, here] * len(levels)).astype(np.intp), len(levels) - 1)
            found[:, here] = levels[at]
        order = np.argsort(chance.random((queues, groups), np.float32), axis=0)
        found = np.take_along_axis(found, order, axis=0)
        # a topic with silent queues may leave a group with none that speaks
        found[:, ~found.any(axis=0)] = 1.0
        return found


def _relative(amounts: Sequence[float]) -> tuple[float, ...]:
    mean = sum(amounts) / len(amounts)
    return tuple(amount / mean for amount in sorted(amounts))
