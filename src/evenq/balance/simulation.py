"""What each strategy makes of a scenario: who holds what after every change, how even it is, what it cost to get there.

>>> scenario = Scenario(queues=16, members=4, events=[Event("join")])
>>> avg, sticky = simulate(scenario, ["AVG", "STICKY"])
>>> avg.moved, sticky.moved, sticky.least
(10, 3, 3)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import TypeAlias

from evenq.balance.measures import gini, least_moves, load, moved, peak, ratio, spread, unheld
from evenq.balance.ordering import sorted_members
from evenq.balance.registry import assign, strategy
from evenq.balance.rooms import room_of
from evenq.balance.scenario import Event, Scenario, Stage, room_names
from evenq.balance.sticky_group import StickyGroup
from evenq.balance.strategies import Strategy
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["STICKY", "Event", "Run", "Scenario", "Step", "names_for", "simulate"]

STICKY = "STICKY"

Shares: TypeAlias = dict[str, list[MessageQueue]]
Balancer: TypeAlias = Callable[[Sequence[str], Sequence[MessageQueue]], Shares]
"""Shares the queues out among the members. One that remembers is made anew for every run."""


@dataclass(frozen=True)
class Step:
    """One change of a group, under one strategy; part of the event of that number."""

    number: int
    event: str
    before: Shares
    after: Shares
    queues: Sequence[MessageQueue]
    # the fewest moves by which a group that was even before could have stayed even: the same for all strategies
    least: int

    @property
    def joined(self) -> list[str]:
        return sorted_members(self.after.keys() - self.before.keys())

    @property
    def left(self) -> list[str]:
        return sorted_members(self.before.keys() - self.after.keys())

    @cached_property
    def moved(self) -> frozenset[MessageQueue]:
        return moved(self.before, self.after)

    @cached_property
    def to_even(self) -> int:
        """The fewest moves by which the queues could have been shared evenly, from where this strategy had them."""
        return least_moves(self.before, self.after.keys(), self.queues)

    @property
    def ratio(self) -> float | None:
        return ratio(len(self.moved), self.least)

    @cached_property
    def unheld(self) -> frozenset[MessageQueue]:
        return unheld(self.after, self.queues)

    @property
    def load(self) -> dict[str, int]:
        return load(self.after)

    @cached_property
    def spread(self) -> int:
        return spread(self.after)

    @cached_property
    def peak(self) -> float:
        return peak(self.after)

    @cached_property
    def gini(self) -> float:
        return gini(self.after)


@dataclass(frozen=True)
class Run:
    """A whole scenario under one strategy. ``start`` is how the queues were first shared out."""

    strategy: str
    start: Shares
    steps: tuple[Step, ...]

    @property
    def moved(self) -> int:
        return sum(len(step.moved) for step in self.steps)

    @property
    def least(self) -> int:
        return sum(step.least for step in self.steps)

    @property
    def ratio(self) -> float | None:
        return ratio(self.moved, self.least)

    @property
    def spread(self) -> int:
        """The widest at any time."""
        return max([spread(self.start), *(step.spread for step in self.steps)])

    @property
    def peak(self) -> float:
        """The fullest member at any time, as a multiple of the mean."""
        return max([peak(self.start), *(step.peak for step in self.steps)])

    @property
    def unheld(self) -> int:
        """The most queues that nobody held after a change."""
        return max((len(step.unheld) for step in self.steps), default=0)

    def by_event(self) -> list[tuple[str, list[Step]]]:
        """Every event with its steps: one, or many where members restart one after the other."""
        grouped = (list(steps) for _, steps in groupby(self.steps, key=lambda step: step.number))
        return [(steps[0].event, steps) for steps in grouped]


def simulate(
    scenario: Scenario,
    strategies: Iterable[str] | None = None,
    *,
    virtual_nodes: int = 10,
    machine_rooms: Iterable[str] | None = None,
) -> list[Run]:
    """Run the scenario under each strategy, by name; all that make sense in it where none are named.

    Like RocketMQ, the strategies share out one topic at a time; ``STICKY`` looks at all topics together. The least that
    a change takes is what it takes to keep each topic and the totals even.
    ``CONFIG`` gives every member of the start its ``AVG`` share, and nobody anything else. ``machine_rooms`` are the
    rooms whose queues ``MACHINE_ROOM`` takes, all by default.
    """
    make = _Makers(scenario, virtual_nodes, machine_rooms)
    balancers = {name: make(name) for name in strategies or names_for(scenario)}
    queues, stages = scenario.all_queues(), list(scenario.stages())
    even = pairwise(_history(make(STICKY), stages, queues))
    least = [least_moves(before, after, queues) for before, after in even]
    return [
        _run(name, _history(balancer, stages, queues), stages, queues, least) for name, balancer in balancers.items()
    ]


def names_for(scenario: Scenario) -> list[str]:
    """The strategies that make sense: those that go by rooms only where there are rooms."""
    with_rooms = ["MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG"] if scenario.rooms else []
    return ["AVG", "AVG_BY_CIRCLE", *with_rooms, "CONSISTENT_HASH", "CONFIG", STICKY]


def _history(balancer: Balancer, stages: Sequence[Stage], queues: Sequence[MessageQueue]) -> list[Shares]:
    return [balancer(stage.members, queues) for stage in stages]


def _run(
    name: str,
    history: Sequence[Shares],
    stages: Sequence[Stage],
    queues: Sequence[MessageQueue],
    least: Sequence[int],
) -> Run:
    changes = zip(stages[1:], pairwise(history), least, strict=True)
    steps = (Step(stage.number, stage.event, *change, queues, moves) for stage, change, moves in changes)
    return Run(name, history[0], tuple(steps))


class _Makers:
    """Strategies by name, made for a scenario."""

    def __init__(self, scenario: Scenario, virtual_nodes: int, machine_rooms: Iterable[str] | None) -> None:
        self._scenario = scenario
        self._virtual_nodes = virtual_nodes
        rooms = room_names(scenario.rooms)
        self._machine_rooms = list(machine_rooms or rooms)
        for room in self._machine_rooms:
            if room not in rooms:
                raise ArgumentError("machine_rooms", room, f"the rooms here are {', '.join(rooms) or 'none'}")

    def __call__(self, name: str) -> Balancer:
        if name == STICKY:
            return self._sticky()
        if name == "CONFIG":
            return self._config()
        if name.startswith("MACHINE_ROOM") and not self._scenario.rooms:
            raise ArgumentError("strategy", name, "it needs brokers with rooms; give rooms of at least 1")
        return _stateless(strategy(name, **self._params(name)))

    def _params(self, name: str) -> Mapping[str, object]:
        """What the strategy of that name has to be told."""
        match name.partition("-")[0]:
            case "CONSISTENT_HASH":
                return {"virtual_nodes": self._virtual_nodes}
            case "MACHINE_ROOM":
                return {"rooms": self._machine_rooms}
            case "MACHINE_ROOM_NEARBY":
                return {"broker_room": room_of, "member_room": self._scenario.member_rooms().get}
            case _:
                return {}

    def _sticky(self) -> Balancer:
        group = StickyGroup()
        chance = random.Random(self._scenario.seed)

        def share_out(members: Sequence[str], queues: Sequence[MessageQueue]) -> Shares:
            group.settle(members, queues, chance.shuffle)
            return group.assignment()

        return share_out

    def _config(self) -> Balancer:
        fixed: Shares = {}

        def share_out(members: Sequence[str], queues: Sequence[MessageQueue]) -> Shares:
            if not fixed:
                fixed.update(_stateless(strategy("AVG"))(members, queues))
            return {member: list(fixed.get(member, ())) for member in members}

        return share_out


def _stateless(strategy: Strategy) -> Balancer:
    """Topic by topic, as the rebalance loop does it."""

    def share_out(members: Sequence[str], queues: Sequence[MessageQueue]) -> Shares:
        shares: Shares = {member: [] for member in members}
        for _, of_topic in groupby(queues, key=lambda queue: queue.topic):
            for member, share in assign(strategy, of_topic, members).items():
                shares[member] += share
        return shares

    return share_out
