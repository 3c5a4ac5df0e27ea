"""What each strategy makes of one change in very many random groups, with numpy.

>>> scenario = Scenario(queues=16, members=4, events=[Event("join")])
>>> avg, sticky = simulate_groups(scenario, 1000, ["AVG", "STICKY"])
>>> round(avg.moved / avg.groups), sticky.ratio, sticky.max_spread
(6, 1.0, 1)

Every group has members and topics of its own, see :mod:`evenq.balance.groups_draw`. The answers are those of the
strategies themselves: ``AVG`` and its like only look at places in sorted lists, so one call of the strategy for each
number of members tells all; ``CONSISTENT_HASH`` compares ways on the ring; ``STICKY`` runs its claims in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import TypeAlias

import numpy as np

from evenq.balance.groups_draw import Array, Draw, Pool, count
from evenq.balance.groups_sticky import StickyGroups
from evenq.balance.measures import ratio
from evenq.balance.registry import assign, strategy
from evenq.balance.scenario import Event, Scenario, lay_out, room_names
from evenq.balance.simulation import STICKY, names_for
from evenq.errors import ArgumentError

__all__ = ["Event", "GroupsResult", "Scenario", "holders_in_groups", "simulate_groups"]

# Queues of all groups worked on at a time: their arrays then stay in the processor's cache.
CELLS = 1 << 19
NOBODY = -1

Holders: TypeAlias = tuple[Array, Array]
"""[queue, group] → row of the holder, before and after the change."""


@dataclass(slots=True)
class GroupsResult:
    """One strategy over all groups.

    ``moved``, ``unheld``: queues, all groups together. ``least``: the fewest moves by which groups that were even
    could have stayed even, the same for all strategies; ``to_even``: by which this strategy's groups could have
    become even. ``exact``: groups that moved just that many. ``loads``, ``spreads``: how many members, groups have
    each value after the change.
    """

    strategy: str
    groups: int = 0
    moved: int = 0
    least: int = 0
    to_even: int = 0
    exact: int = 0
    unheld: int = 0
    # the sum over groups of the fullest member's load as a multiple of the mean
    peaks: float = 0.0
    loads: dict[int, int] = field(default_factory=dict)
    spreads: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Moves as a multiple of the least, over all groups."""
        return ratio(self.moved, self.least)

    @property
    def mean_spread(self) -> float:
        return sum(spread * groups for spread, groups in self.spreads.items()) / self.groups

    @property
    def max_spread(self) -> int:
        return max(self.spreads)

    @property
    def mean_peak(self) -> float:
        return self.peaks / self.groups


def simulate_groups(
    scenario: Scenario,
    groups: int,
    strategies: Iterable[str] | None = None,
    *,
    virtual_nodes: int = 10,
    progress: Callable[[int], None] = lambda done: None,
) -> list[GroupsResult]:
    """The strategies by name, in ``groups`` groups, each of them changed by the scenario's one event.

    ``progress`` is told now and then how many groups are done.
    """
    if groups < 1:
        raise ArgumentError("groups", groups, "give at least 1")
    if len(scenario.events) != 1 or scenario.events[0].kind == "restart":
        events = ", ".join(map(str, scenario.events))
        raise ArgumentError("event", events, "many groups take one event: join, leave, crash or replace, e.g. join:2")
    names = list(strategies or names_for(scenario))
    # STICKY always runs: it stays even with the fewest moves, so it tells what the change takes
    results = {name: GroupsResult(name) for name in (STICKY, *names)}
    for name in results:
        _solver(name, scenario)
    pool = Pool(scenario, virtual_nodes)
    chance = np.random.default_rng([scenario.seed, 1])
    chunk = max(1, CELLS // (scenario.queues * scenario.topics))
    for start in range(0, groups, chunk):
        draw = pool.draw(min(chunk, groups - start), chance)
        for name, result in results.items():
            begun = perf_counter()
            _measure(result, draw, *holders_in_groups(name, draw))
            result.seconds += perf_counter() - begun
        progress(start + draw.groups)
    for result in results.values():
        result.least = results[STICKY].to_even
    return [results[name] for name in names]


def holders_in_groups(name: str, draw: Draw) -> Holders:
    """Who holds each queue of each group under the strategy of that name, before and after the change."""
    return _solver(name, draw.pool.scenario)(draw)


def _to_even(draw: Draw, before: Array) -> Array:
    """:func:`evenq.balance.measures.least_moves` of every group."""
    floor, extra = divmod(len(before), len(draw.after))
    had = np.array([count(before == member) for member in draw.after])
    kept = np.minimum(had, floor).sum(axis=0) + np.minimum(count(had > floor), extra)
    to_even: Array = count(before != NOBODY) - kept
    return to_even


def _measure(result: GroupsResult, draw: Draw, before: Array, after: Array) -> None:
    """The other measures of :mod:`evenq.balance.measures`, for every group."""
    loads = np.array([count(after == member) for member in draw.after])
    moved = count((before != after) & (before != NOBODY) & (after != NOBODY))
    to_even = _to_even(draw, before)
    most, total = loads.max(axis=0), loads.sum(axis=0)
    result.groups += draw.groups
    result.moved += int(moved.sum())
    result.unheld += int((after == NOBODY).sum())
    result.to_even += int(to_even.sum())
    result.exact += int((moved == to_even).sum())
    result.peaks += float(np.where(total > 0, most * len(loads) / np.maximum(total, 1), 1.0).sum())
    _tally(result.loads, loads)
    _tally(result.spreads, most - loads.min(axis=0))


def _tally(histogram: dict[int, int], values: Array) -> None:
    for value, times in enumerate(np.bincount(values.ravel()).tolist()):
        if times:
            histogram[value] = histogram.get(value, 0) + times


def _solver(name: str, scenario: Scenario) -> Callable[[Draw], Holders]:
    kind, _, inner = name.partition("-")
    if kind.startswith("MACHINE_ROOM") and not scenario.rooms:
        raise ArgumentError("strategy", name, "it needs brokers with rooms; give rooms of at least 1")
    if kind in BY_PLACE and not inner:
        return lambda draw: (_by_place(kind, draw, draw.before), _by_place(kind, draw, draw.after))
    if kind == "MACHINE_ROOM_NEARBY" and inner in BY_PLACE:
        return lambda draw: (_nearby(inner, draw, draw.before), _nearby(inner, draw, draw.after))
    if name not in OTHERS:
        known = ", ".join([*BY_PLACE, *OTHERS, *(f"MACHINE_ROOM_NEARBY-{name}" for name in BY_PLACE)])
        raise ArgumentError("strategy", name, f"in many groups at once the strategies are {known}")
    return OTHERS[name]


# Strategies that look at places in the sorted lists only.
BY_PLACE = ("AVG", "AVG_BY_CIRCLE", "MACHINE_ROOM")


@lru_cache(maxsize=4096)
def _places(name: str, members: int, queues: int, brokers: int, rooms: int) -> Array:
    """Queue → the place of its holder in the sorted list of so many members: the strategy's own answer."""
    params = {"rooms": room_names(rooms)} if name == "MACHINE_ROOM" else {}
    ids = [f"{number:06}" for number in range(members)]
    everything = lay_out("topic", queues, brokers, rooms)
    found = {
        queue: place
        for place, share in enumerate(assign(strategy(name, **params), everything, ids).values())
        for queue in share
    }
    return np.array([found[queue] for queue in everything], np.int16)


def _layout(scenario: Scenario) -> tuple[int, int, int]:
    return scenario.queues, scenario.brokers, scenario.rooms


def _by_place(name: str, draw: Draw, members: Array) -> Array:
    scenario = draw.pool.scenario
    holders: Array = members[np.tile(_places(name, len(members), *_layout(scenario)), scenario.topics)]
    return holders


def _nearby(inner: str, draw: Draw, members: Array) -> Array:
    """Room by room: its queues go to its own members, or to all where it has none."""
    scenario = draw.pool.scenario
    rooms = draw.pool.rooms[np.take_along_axis(draw.members, members.astype(np.intp), axis=0)]
    layout = lay_out("topic", *_layout(scenario))
    holders = np.empty((scenario.queues, draw.groups), members.dtype)
    for room, name in enumerate(draw.pool.room_names):
        columns = [column for column, queue in enumerate(layout) if queue.broker.startswith(f"{name}@")]
        if not columns:
            continue
        inside = rooms == room
        # the members of the room, in order, before all others; no members: all
        order = np.argsort(~inside, axis=0, kind="stable")
        places = _places_by_count(inner, len(members), len(columns))[count(inside)].T
        holders[columns] = np.take_along_axis(members, np.take_along_axis(order, places, axis=0), axis=0)
    return np.tile(holders, (scenario.topics, 1))


def _places_by_count(name: str, members: int, queues: int) -> Array:
    """[members of a room, queue] → place of the holder; where a room has none, all ``members`` share."""
    sizes = [members, *range(1, members + 1)]
    return np.array([_places(name, size, queues, brokers=1, rooms=1) for size in sizes], np.intp)


def _config(draw: Draw) -> Holders:
    """Everybody keeps the ``AVG`` share of the start, and nobody gets anything else."""
    before = _by_place("AVG", draw, draw.before)
    stays = (before[:, None] == draw.after[None]).any(axis=1)
    return before, np.where(stays, before, NOBODY)


def _consistent_hash(draw: Draw) -> Holders:
    ways = draw.pool.distances
    found: list[Array] = []
    for members in (draw.before, draw.after):
        numbers = np.take_along_axis(draw.members, members.astype(np.intp), axis=0)
        found.append(np.concatenate([_nearest(ways, numbers, members, topic) for topic in draw.topics]))
    before, after = found
    return before, after


def _nearest(ways: Array, numbers: Array, members: Array, topic: Array) -> Array:
    """The member with the shortest way on the ring from each queue of the topic."""
    shortest = ways[numbers[0], topic]
    holder = np.broadcast_to(members[0][:, None], shortest.shape).copy()
    for number, member in zip(numbers[1:], members[1:], strict=True):
        way = ways[number, topic]
        nearer = way < shortest
        np.copyto(shortest, way, where=nearer)
        np.copyto(holder, member[:, None], where=nearer)
    return holder.T


def _sticky(draw: Draw) -> Holders:
    scenario = draw.pool.scenario
    groups = StickyGroups(scenario.queues * scenario.topics, len(draw.members), draw.groups)
    groups.settle(draw.before, draw.order_before)
    before = groups.holder.copy()
    groups.settle(draw.after, draw.order_after)
    return before, groups.holder


OTHERS: dict[str, Callable[[Draw], Holders]] = {
    "CONSISTENT_HASH": _consistent_hash,
    "CONFIG": _config,
    STICKY: _sticky,
}
