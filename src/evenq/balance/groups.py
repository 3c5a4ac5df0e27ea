"""What each strategy makes of one change in very many random groups, with numpy.

>>> scenario = Scenario(queues=16, members=4, events=[Event("join")])
>>> avg, sticky = simulate_groups(scenario, 1000, ["AVG", "STICKY"])
>>> round(avg.moved / avg.groups), sticky.ratio, sticky.max_spread
(6, 1.0, 1)

Every group has members and topics of its own, see :mod:`evenq.balance.groups_draw`. Groups are worked on in chunks,
each with a luck of its own that depends on nothing but its number: whoever does them, and in which order, the result is
the same. So a population of groups can be simulated here, in one process, or on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from time import perf_counter

import numpy as np

from evenq.balance.groups_draw import MEMBERS, TOPICS, Pool
from evenq.balance.groups_holders import holders_in_groups, solver
from evenq.balance.groups_result import GroupsResult, measure
from evenq.balance.groups_sizes import Shape, Shapes, divide
from evenq.balance.groups_traffic import Traffic
from evenq.balance.scenario import Event, Scenario
from evenq.balance.simulation import STICKY, names_for
from evenq.errors import ArgumentError

__all__ = [
    "Chunk",
    "Event",
    "GroupsResult",
    "Population",
    "Scenario",
    "holders_in_groups",
    "pool_of",
    "simulate_chunk",
    "simulate_groups",
    "simulate_population",
]

# Queues of all groups worked on at a time: their arrays then stay in the processor's cache.
CELLS = 1 << 19
# There is one topic to draw from for so many groups, and one member for every group, up to the pool's own limits.
GROUPS_PER_TOPIC = 16
FEWEST_MEMBERS = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """Groups of one shape that are worked on at a time: ``of`` all that have it. ``number`` counts within the shape."""

    shape: Shape
    number: int
    groups: int
    of: int


@dataclass(frozen=True)
class Population:
    """Groups of many shapes, and what happens to each.

    ``scenario`` says all but the sizes: event, topics, brokers, rooms, seed. ``shapes`` says how many groups have each
    size. ``traffic``, where it is known, what their queues get.
    """

    scenario: Scenario
    shapes: tuple[tuple[Shape, int], ...]
    strategies: tuple[str, ...]
    virtual_nodes: int = 10
    traffic: Traffic | None = None

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        groups: int,
        shapes: Shapes | None = None,
        strategies: Iterable[str] | None = None,
        *,
        virtual_nodes: int = 10,
        traffic: Traffic | None = None,
    ) -> Population:
        """So many groups with sizes as ``shapes`` has them; without, all have the scenario's."""
        if groups < 1:
            raise ArgumentError("groups", groups, "give at least 1")
        if len(scenario.events) != 1 or scenario.events[0].kind == "restart":
            events = ", ".join(map(str, scenario.events))
            remedy = "many groups take one event: join, leave, crash or replace, e.g. join:2"
            raise ArgumentError("event", events, remedy)
        if virtual_nodes < 1:
            raise ArgumentError("virtual_nodes", virtual_nodes, "give at least 1; Java's default is 10")
        names = tuple(strategies or names_for(scenario))
        for name in names:
            solver(name, scenario)
        own = Shape(scenario.queues, scenario.members)
        counts = divide(groups, shapes or {own: 1.0}, scenario.seed)
        for shape in counts:
            # where the event cannot happen to so few members, this says so
            replace(scenario, queues=shape.queues, members=shape.members)
        # a tuple: pools are kept by scenario
        scenario = replace(scenario, events=tuple(scenario.events))
        return cls(scenario, tuple(counts.items()), names, virtual_nodes, traffic)

    @property
    def groups(self) -> int:
        return sum(count for _, count in self.shapes)

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        return tuple(self._chunks())

    def _chunks(self) -> Iterator[Chunk]:
        for shape, count in self.shapes:
            size = max(1, CELLS // (shape.queues * self.scenario.topics))
            for number, start in enumerate(range(0, count, size)):
                yield Chunk(shape, number, min(size, count - start), count)


def simulate_chunk(population: Population, chunk: Chunk) -> list[GroupsResult]:
    """One result per strategy. It depends on the population and the chunk alone."""
    shape, seed = chunk.shape, population.scenario.seed
    scenario = replace(population.scenario, queues=shape.queues, members=shape.members)
    pool = pool_of(scenario, population.virtual_nodes, chunk.of)
    draw = pool.draw(chunk.groups, np.random.default_rng([seed, 1, shape.queues, shape.members, chunk.number]))
    weights = None
    if population.traffic is not None:
        luck = np.random.default_rng([seed, 3, shape.queues, shape.members, chunk.number])
        weights = population.traffic.draw(shape.queues, scenario.topics, chunk.groups, luck)
    # STICKY always runs: it stays even with the fewest moves, so it tells what the change takes
    results = {name: GroupsResult(name) for name in (STICKY, *population.strategies)}
    for name, result in results.items():
        begun = perf_counter()
        measure(result, draw, *holders_in_groups(name, draw), weights)
        result.seconds += perf_counter() - begun
    for result in results.values():
        result.least = results[STICKY].to_even
    return [results[name] for name in population.strategies]


@lru_cache(maxsize=2)
def pool_of(scenario: Scenario, virtual_nodes: int, groups: int) -> Pool:
    """What so many groups are drawn from: few need no large one."""
    members = min(MEMBERS, max(FEWEST_MEMBERS, groups))
    return Pool(scenario, virtual_nodes, members, min(TOPICS, max(1, groups // GROUPS_PER_TOPIC)))


def simulate_population(
    population: Population, *, progress: Callable[[int], None] = lambda done: None
) -> list[GroupsResult]:
    """All chunks in this process, added up. ``progress`` is told now and then how many groups are done."""
    done = 0
    parts = []
    for chunk in population.chunks:
        parts += simulate_chunk(population, chunk)
        done += chunk.groups
        progress(done)
    return GroupsResult.total(parts)


def simulate_groups(
    scenario: Scenario,
    groups: int,
    strategies: Iterable[str] | None = None,
    *,
    virtual_nodes: int = 10,
    progress: Callable[[int], None] = lambda done: None,
) -> list[GroupsResult]:
    """The strategies by name, in ``groups`` groups of one size, each of them changed by the scenario's one event."""
    population = Population.of(scenario, groups, None, strategies, virtual_nodes=virtual_nodes)
    return simulate_population(population, progress=progress)
