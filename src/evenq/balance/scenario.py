"""What happens to a group: who is there at the start, and who comes and goes. The strategies have no part in it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, get_args

from evenq.balance.ordering import sorted_queues
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["EVENTS", "ONE_OF_EACH", "Event", "EventKind", "Scenario", "Stage", "lay_out", "room_names"]

EventKind = Literal["join", "leave", "crash", "replace", "restart"]
EVENTS: tuple[EventKind, ...] = get_args(EventKind)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a group: ``count`` members join, leave or crash together, or are replaced by others
    at one stroke; or, one after the other, ``count`` members (0: all of them) restart under the names they had.

    >>> Event.parse("join:2"), Event.parse("restart")
    (Event(kind='join', count=2), Event(kind='restart', count=0))
    """

    kind: EventKind
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Event:
        """``kind`` or ``kind:count``."""
        kind, colon, count = text.partition(":")
        if kind not in EVENTS:
            raise ArgumentError("event", text, f"it begins with one of {', '.join(EVENTS)}")
        if colon and not (count.isdecimal() and int(count) > 0):
            raise ArgumentError("event", text, f"after the colon give how many members, e.g. {kind}:2")
        default = 0 if kind == "restart" else 1
        return cls(kind, int(count) if colon else default)

    def __str__(self) -> str:
        return self.kind if self == Event.parse(self.kind) else f"{self.kind}:{self.count}"


ONE_OF_EACH = tuple(map(Event.parse, EVENTS))


@dataclass(frozen=True, slots=True)
class Stage:
    """The members after one change of an event; ``number`` counts the events from 1, the start is 0."""

    number: int
    event: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group and its events.

    Every topic has ``queues`` queues, dealt out over the brokers; brokers and members are dealt out over the rooms.
    Member names are random, as client ids are: where a new member stands in the sorted list is a matter of luck.
    """

    queues: int = 16
    members: int = 4
    topics: int = 1
    brokers: int = 2
    rooms: int = 2
    events: Sequence[Event] = ONE_OF_EACH
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("queues", "members", "topics", "brokers"):
            if getattr(self, name) < 1:
                raise ArgumentError(name, getattr(self, name), "give at least 1")
        if self.rooms < 0:
            raise ArgumentError("rooms", self.rooms, "give 0 for brokers that name no room, or more")
        there = self.members
        for event in self.events:
            if event.kind in ("leave", "crash") and event.count >= there:
                raise ArgumentError("event", str(event), f"only {there} members are there then, and one must stay")
            if event.kind in ("replace", "restart") and event.count > there:
                raise ArgumentError("event", str(event), f"only {there} members are there then")
            there += {"join": event.count, "leave": -event.count, "crash": -event.count}.get(event.kind, 0)

    def all_queues(self) -> list[MessageQueue]:
        """In Java's order."""
        names = [f"topic-{number:0{len(str(self.topics))}}" for number in range(1, self.topics + 1)]
        return sorted_queues(
            queue for topic in names for queue in lay_out(topic, self.queues, self.brokers, self.rooms)
        )

    def everybody(self) -> list[str]:
        """All who are ever there, in the order in which they come."""
        count = self.members + sum(event.count for event in self.events if event.kind in ("join", "replace"))
        numbers = random.Random(self.seed).sample(range(100, max(1000, 20 * count)), count)
        return [f"member-{number}" for number in numbers]

    def member_rooms(self) -> dict[str, str]:
        """Member → its room; nothing where there are no rooms."""
        return dict(zip(self.everybody(), cycle(room_names(self.rooms)), strict=False))

    def stages(self) -> Iterator[Stage]:
        """The start and every change after it. The same every time for the same seed."""
        chance = random.Random(self.seed)
        newcomers = iter(self.everybody())
        stage = Stage(0, "start", tuple(islice(newcomers, self.members)))
        yield stage
        for number, event in enumerate(self.events, start=1):
            for members in _changes(event, stage.members, newcomers, chance):
                stage = Stage(number, str(event), members)
                yield stage


def _changes(
    event: Event, there: tuple[str, ...], newcomers: Iterator[str], chance: random.Random
) -> Iterator[tuple[str, ...]]:
    """The members after each change that the event consists of."""
    if event.kind == "join":
        yield (*there, *islice(newcomers, event.count))
        return
    chosen = chance.sample(there, event.count or len(there))
    if event.kind == "restart":
        for member in chosen:
            if len(there) > 1:
                yield tuple(other for other in there if other != member)
            yield there
        return
    rest = tuple(member for member in there if member not in chosen)
    yield (*rest, *islice(newcomers, event.count)) if event.kind == "replace" else rest


def lay_out(topic: str, queues: int, brokers: int, rooms: int) -> list[MessageQueue]:
    """The queues of a topic, dealt out over the brokers, in Java's order.

    >>> [f"{queue.broker}:{queue.queue_id}" for queue in lay_out("orders", 3, brokers=2, rooms=2)]
    ['room-a@broker-a:0', 'room-a@broker-a:1', 'room-b@broker-b:0']
    """
    in_room = [f"{room}@" for room in room_names(rooms)] or [""]
    names = [f"{in_room[number % len(in_room)]}broker-{_letters(number)}" for number in range(brokers)]
    return sorted_queues(MessageQueue(topic, names[number % brokers], number // brokers) for number in range(queues))


def room_names(rooms: int) -> list[str]:
    return [f"room-{_letters(number)}" for number in range(rooms)]


def _letters(number: int) -> str:
    """a, b, …, z, ba, bb, …"""
    rest, last = divmod(number, len(LETTERS))
    return (_letters(rest) if rest else "") + LETTERS[last]
