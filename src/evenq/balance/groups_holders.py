"""Who holds what in very many groups under each strategy, before and after a change, with numpy.

The answers are those of the strategies themselves: ``AVG`` and its like only look at places in sorted lists, so one
call of the strategy for each number of members tells all; ``CONSISTENT_HASH`` compares ways on the ring; ``STICKY``
runs its claims in arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from evenq.balance.groups_draw import Array, Draw, count
from evenq.balance.groups_sticky import StickyGroups
from evenq.balance.registry import assign, strategy
from evenq.balance.scenario import Scenario, lay_out, room_names
from evenq.balance.simulation import STICKY
from evenq.errors import ArgumentError

__all__ = ["NOBODY", "Holders", "holders_in_groups", "solver"]

NOBODY = -1

Holders: TypeAlias = tuple[Array, Array]
"""[queue, group] → row of the holder, before and after the change."""


def holders_in_groups(name: str, draw: Draw) -> Holders:
    """Who holds each queue of each group under the strategy of that name, before and after the change."""
    return solver(name, draw.pool.scenario)(draw)


def solver(name: str, scenario: Scenario) -> Callable[[Draw], Holders]:
    """What computes the holders; a strategy that cannot be simulated so is named."""
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
    groups = StickyGroups(scenario.queues, scenario.topics, len(draw.members), draw.groups)
    groups.settle(draw.before, draw.order_before)
    before = groups.holder.copy()
    groups.settle(draw.after, draw.order_after)
    return before, groups.holder


OTHERS: dict[str, Callable[[Draw], Holders]] = {
    "CONSISTENT_HASH": _consistent_hash,
    "CONFIG": _config,
    STICKY: _sticky,
}
