"""Selectors: the caller decides which queue a message goes to, by the message and an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol, TypeAlias, runtime_checkable

from evenq.balance.hashing import java_hash
from evenq.balance.rooms import room_of, room_set
from evenq.balance.roundrobin import RoundRobin
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue

__all__ = ["HashSelector", "MachineRoomSelector", "RandomSelector", "Selector", "SelectorLike", "as_selector"]


@runtime_checkable
class Selector(Protocol):
    """Chooses one of ``queues``, the writable queues of the message's topic in the order of the route."""

    def select(self, queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue: ...


SelectorLike: TypeAlias = Selector | Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""Wherever a selector is asked for: the thing itself, or a function of queues, message and argument."""


class RandomSelector:
    """Any queue, by chance; the argument is not looked at."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()

    def select(self, queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        return self._random.choice(_some(queues))


class HashSelector:
    """The same argument, the same queue: ``abs(java_hash(arg)) % n``, where a Java producer sends it too.

    >>> queues = [MessageQueue("orders", "broker-a", n) for n in range(8)]
    >>> HashSelector().select(queues, Message("orders", b""), "o-1").queue_id
    3
    """

    def select(self, queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        return _some(queues)[abs(java_hash(arg)) % len(queues)]


class MachineRoomSelector:
    """Round robin over the queues whose broker is in one of the rooms (``room@name``).

    Where no broker of the topic is in these rooms, over all queues: a message is better far away than lost.
    """

    def __init__(self, rooms: Iterable[str], random: Random | None = None) -> None:
        self.rooms = room_set(rooms)
        self._round_robin = RoundRobin(random or Random())

    def select(self, queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        near = [queue for queue in _some(queues) if room_of(queue.broker) in self.rooms] or queues
        return near[self._round_robin.counter().next() % len(near)]


class _Function:
    """A plain function as a selector."""

    def __init__(self, function: Callable[[Sequence[MessageQueue], Message, object], MessageQueue]) -> None:
        self._function = function

    def select(self, queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        queue = self._function(_some(queues), message, arg)
        if not isinstance(queue, MessageQueue):
            raise ArgumentError("selector", queue, "the function must return one of the queues that it was given")
        return queue


def as_selector(value: SelectorLike) -> Selector:
    """``value`` as a selector: itself, or a plain function of queues, message and argument."""
    if isinstance(value, Selector):
        return value
    if callable(value):
        return _Function(value)
    raise ArgumentError("selector", value, "give a selector, e.g. HashSelector(), or a function that selects")


def _some(queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
    if not queues:
        raise ArgumentError("queues", queues, "give at least one queue: the topic has none that can be written")
    return queues
