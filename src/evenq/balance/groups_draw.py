"""Random groups by the million, as arrays: who is in each before and after a change, which topics it reads.

Arrays have one column per group. A member is known by its *row*: its place in the sorted list of all who are in the
group before or after the change. Real member ids and topic names stand behind the numbers: a pool of them is made
first, with their hashes on the ring of ``CONSISTENT_HASH``, and groups are drawn from it. A member's places on the
ring depend on nothing but its id, so each MD5 is computed once, and with a few thousand ids no two groups are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evenq.balance.hashing import ring_hash
from evenq.balance.scenario import Scenario, lay_out, room_names
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["Array", "Draw", "Pool", "count"]

Array: TypeAlias = npt.NDArray[Any]

# How many ids and topics there are to draw from, and how many ways on the ring are kept at most, 4 bytes each.
MEMBERS, TOPICS = 2048, 256
WAYS = 1 << 23


class Pool:
    """The ids, names and hashes that groups are drawn from."""

    def __init__(
        self, scenario: Scenario, virtual_nodes: int, members: int = MEMBERS, most_topics: int = TOPICS
    ) -> None:
        if virtual_nodes < 1:
            raise ArgumentError("virtual_nodes", virtual_nodes, "give at least 1; Java's default is 10")
        self.scenario = scenario
        self.virtual_nodes = virtual_nodes
        # fewer to draw from where topics have many queues
        members = max(4 * len(scenario.everybody()), min(members, WAYS // scenario.queues))
        topics = max(scenario.topics, min(most_topics, WAYS // (members * scenario.queues)))
        self._ring = _ring(scenario.seed, members, virtual_nodes)
        self.topics = [f"topic-{number:04}" for number in range(topics)]
        names = room_names(scenario.rooms) or [""]
        self.rooms = np.random.default_rng([scenario.seed, 4]).integers(len(names), size=len(self.members))
        self.room_names = names

    @property
    def members(self) -> list[str]:
        """Sorted, so that the order of pool numbers is the order of ids."""
        return self._ring.ids

    def queues(self, topic: int) -> list[MessageQueue]:
        """The queues of a topic in Java's order."""
        return lay_out(self.topics[topic], self.scenario.queues, self.scenario.brokers, self.scenario.rooms)

    @cached_property
    def distances(self) -> Array:
        """[member, topic, queue] → the way on the ring from the queue to the member's first place at or after it.

        A queue belongs to the member with the shortest way. Unsigned numbers run round at 2^32 as the ring does.
        """
        topics = range(len(self.topics))
        way = np.empty((len(self.members), len(topics), self.scenario.queues), np.uint32)
        queues = np.array([[ring_hash(str(queue)) for queue in self.queues(topic)] for topic in topics], np.uint32)
        for number, places in enumerate(self._ring.places):
            following = places[np.searchsorted(places, queues) % self.virtual_nodes]
            np.subtract(following, queues, out=way[number])
        return way

    def draw(self, groups: int, chance: np.random.Generator) -> Draw:
        scenario = self.scenario
        (event,) = scenario.events
        joining = event.count if event.kind in ("join", "replace") else 0
        leaving = event.count if event.kind != "join" else 0
        everybody = scenario.members + joining
        small = np.int8 if everybody < 128 else np.int16
        # who comes first in the list of all is a matter of luck; the first `leaving` of this order leave, the last join
        luck = np.argsort(chance.random((everybody, groups), np.float32), axis=0).astype(small)
        after = np.sort(luck[leaving:], axis=0)
        return Draw(
            pool=self,
            members=_distinct(chance, len(self.members), everybody, groups),
            topics=_distinct(chance, len(self.topics), scenario.topics, groups),
            before=np.sort(luck[: scenario.members], axis=0),
            after=after,
            order_before=_permutations(chance, scenario.members, groups),
            order_after=_permutations(chance, len(after), groups),
        )


@dataclass(frozen=True, slots=True)
class _Ring:
    """Members in the order of their ids, and the places of each on the ring, ascending."""

    ids: list[str]
    places: Array


@lru_cache(maxsize=8)
def _ring(seed: int, count: int, virtual_nodes: int) -> _Ring:
    """So many ids, no two with a place in common. Groups of all sizes are drawn from the same ones."""
    chance = np.random.default_rng(seed)
    found: dict[str, list[int]] = {}
    taken: set[int] = set()
    while len(found) < count:
        address, process = chance.integers(256, size=3), chance.integers(1000, 100_000)
        name = f"10.{'.'.join(map(str, address))}@{process}"
        own = {ring_hash(f"{name}-{node}") for node in range(virtual_nodes)}
        if name not in found and len(own) == virtual_nodes and own.isdisjoint(taken):
            found[name] = sorted(own)
            taken |= own
    ids = sorted(found)
    return _Ring(ids, np.array([found[name] for name in ids], np.uint32))


@dataclass(frozen=True, slots=True)
class Draw:
    """Groups, one per column.

    ``members`` [row]: number in the pool, ascending. ``before`` and ``after`` [place in the sorted list]: row.
    ``topics``: numbers in the pool, ascending. ``order_before`` and ``order_after``: the places of the members in the
    order in which they act.
    """

    pool: Pool
    members: Array
    topics: Array
    before: Array
    after: Array
    order_before: Array
    order_after: Array

    @property
    def groups(self) -> int:
        return len(self.members[0])

    def names(self, group: int) -> list[str]:
        """The ids of all who are ever in that group, by row."""
        return [self.pool.members[number] for number in self.members[:, group]]

    def queues(self, group: int) -> list[MessageQueue]:
        return [queue for topic in self.topics[:, group] for queue in self.pool.queues(topic)]


def count(mask: Array) -> Array:
    """True values by column."""
    counted: Array = np.add.reduce(mask, axis=0, dtype=np.int16 if len(mask) < 1 << 15 else np.int32)
    return counted


def _distinct(chance: np.random.Generator, numbers: int, count: int, groups: int) -> Array:
    """``count`` different numbers below ``numbers`` for each group, ascending."""
    if count > numbers:
        raise ArgumentError("members or topics", count, f"a simulation of many groups draws from {numbers}; give fewer")
    drawn = np.sort(chance.integers(numbers, size=(count, groups), dtype=np.int32), axis=0)
    again = np.arange(groups)
    while (again := again[(drawn[1:, again] == drawn[:-1, again]).any(axis=0)]).size:
        # only what came before is drawn again: the others are different, and stay as likely as any
        some = drawn[:, again]
        same = np.vstack([np.zeros((1, again.size), bool), some[1:] == some[:-1]])
        some[same] = chance.integers(numbers, size=int(same.sum()), dtype=np.int32)
        drawn[:, again] = np.sort(some, axis=0)
    return drawn


def _permutations(chance: np.random.Generator, count: int, groups: int) -> Array:
    return np.argsort(chance.random((count, groups), np.float32), axis=0)
