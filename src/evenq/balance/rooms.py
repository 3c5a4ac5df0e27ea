"""The strategies that know machine rooms: ``MACHINE_ROOM`` and ``MACHINE_ROOM_NEARBY-<inner>``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from evenq.balance.strategies import Division, GroupStrategy, Members, Queues, Strategy, divide
from evenq.errors import ArgumentError
from evenq.model import MessageQueue, java_order

__all__ = ["MachineRoom", "MachineRoomNearby", "room_of", "room_set"]

T = TypeVar("T", MessageQueue, str)


def room_of(broker: str) -> str | None:
    """The room of a broker that is named ``room@name``, else None.

    >>> room_of("hz@broker-a"), room_of("broker-a"), room_of("hz@rack@broker-a")
    ('hz', None, None)
    """
    # Java's split drops empty parts at the end.
    parts = broker.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def room_set(rooms: Iterable[str]) -> frozenset[str]:
    """The rooms a caller gave, checked: a bare string would be taken for its letters."""
    if isinstance(rooms, str):
        raise ArgumentError("rooms", rooms, f"give a set of room names, e.g. {{{rooms!r}}}")
    names = frozenset(rooms)
    if not names:
        raise ArgumentError("rooms", rooms, "name at least one room, as brokers do before the @ in their names")
    return names


@dataclass(frozen=True, slots=True)
class MachineRoom(GroupStrategy):
    """``MACHINE_ROOM``: only queues whose broker is in one of the rooms (``room@name``).

    Every member gets ``q // m`` contiguous queues, the first ``q % m`` members one more each from the tail.
    Five queues and two members: 0 1 4 | 2 3.
    """

    rooms: Iterable[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rooms", room_set(self.rooms))

    @property
    def name(self) -> str:
        return "MACHINE_ROOM"

    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        rooms = frozenset(self.rooms)
        near = [queue for queue in queues if room_of(queue.broker) in rooms]
        size, extra = divmod(len(near), len(members))
        tail = near[len(near) - extra :]

        def share(position: int) -> list[MessageQueue]:
            return near[position * size : (position + 1) * size] + tail[position : position + 1]

        return share


@dataclass(frozen=True, slots=True)
class MachineRoomNearby(GroupStrategy):
    """``MACHINE_ROOM_NEARBY-<inner>``: queues go to members of their own room, by the inner strategy.

    Queues of rooms without members are shared by all members, room by room in sorted order.
    ``member_room`` names the room of a member, by its client id. ``queue_room`` names the room of a queue;
    ``broker_room`` can be given instead, and gets the name of the queue's broker only.
    """

    inner: Strategy
    member_room: Callable[[str], str | None]
    queue_room: Callable[[MessageQueue], str | None] | None = None
    broker_room: Callable[[str], str | None] | None = None

    def __post_init__(self) -> None:
        if (self.queue_room is None) == (self.broker_room is None):
            raise ArgumentError("queue_room", self.queue_room, f"{self.name} takes one of queue_room and broker_room")

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        if (broker_room := self.broker_room) is not None:
            queues_in = _by_room(queues, lambda queue: broker_room(queue.broker), "broker_room")
        else:
            assert self.queue_room is not None
            queues_in = _by_room(queues, self.queue_room, "queue_room")
        members_in = _by_room(members, self.member_room, "member_room")

        near: dict[str, Callable[[], list[MessageQueue]]] = {}
        for room in queues_in.keys() & members_in.keys():
            division = divide(self.inner, group, queues_in[room], members_in[room])
            for position, member in enumerate(members_in[room]):
                near.setdefault(member, partial(division, position))
        common = [divide(self.inner, group, queues_in[room], members) for room in queues_in if room not in members_in]

        def share(position: int) -> list[MessageQueue]:
            own = near.get(members[position], list)()
            return [*own, *chain.from_iterable(division(position) for division in common)]

        return share


def _by_room(things: Sequence[T], room: Callable[[T], str | None], resolver: str) -> dict[str, list[T]]:
    """The things by room, the rooms in Java's order."""
    rooms: defaultdict[str, list[T]] = defaultdict(list)
    for thing in things:
        name = room(thing)
        if not name:
            raise ArgumentError(resolver, name, f"it must name a room, and names none for {thing}")
        rooms[name].append(thing)
    return dict(sorted(rooms.items(), key=lambda item: java_order(item[0])))
