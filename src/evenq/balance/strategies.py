"""The strategies: how the members of a group divide the queues of a topic among themselves.

Every member computes its own share from the same sorted lists, so all agree without talking to each other, and
with Java members too: each strategy here gives the Java client's answer, queue by queue and in order.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from evenq.balance.hashing import ring_hash
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = [
    "Average",
    "Circle",
    "Config",
    "ConsistentHash",
    "Custom",
    "Strategy",
    "divide",
    "takes_part",
]

_log = logging.getLogger(__name__)

Queues: TypeAlias = Sequence[MessageQueue]
Members: TypeAlias = Sequence[str]

Division: TypeAlias = Callable[[int], list[MessageQueue]]
"""A group divided: gives the share of the member at a position of the member list."""


@runtime_checkable
class Strategy(Protocol):
    """What a consumer needs of a strategy. ``queues`` and ``members`` come sorted in Java's order."""

    @property
    def name(self) -> str: ...

    def allocate(self, group: str, member: str, queues: Queues, members: Members) -> list[MessageQueue]:
        """The queues of ``member``."""
        ...


class GroupStrategy(ABC):
    """A strategy that does what is common to the group once; each share is cheap after that.

    One definition serves both uses: a member asks for its own share, :func:`evenq.balance.assign` for all.
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        """Divide non-empty, sorted ``queues`` among non-empty, sorted ``members``."""

    def allocate(self, group: str, member: str, queues: Queues, members: Members) -> list[MessageQueue]:
        if not takes_part(group, member, queues, members):
            return []
        # A client with two connections is in the broker's list twice; like Java we go by the first.
        return self.divide(group, queues, members)(members.index(member))


def divide(strategy: Strategy, group: str, queues: Queues, members: Members) -> Division:
    """The division by any strategy, also one that only knows ``allocate``."""
    if isinstance(strategy, GroupStrategy):
        return strategy.divide(group, queues, members)
    return lambda position: strategy.allocate(group, members[position], queues, members)


def takes_part(group: str, member: str, queues: Queues, members: Members) -> bool:
    """Whether ``member`` is to get a share; a call that can have no answer is an error in the Java client's words."""
    if not member:
        raise ArgumentError("member", member, "give the client id of the member", opening="currentCID is empty")
    if not queues:
        raise ArgumentError(
            "queues", queues, "give at least one queue of the topic", opening="mqAll is null or mqAll empty"
        )
    if not members:
        raise ArgumentError(
            "members", members, "give the ids of the group's members", opening="cidAll is null or cidAll empty"
        )
    if member not in members:
        _log.warning("group %s: %s is not among the members %s and gets no queue", group, member, list(members))
        return False
    return True


@dataclass(frozen=True, slots=True)
class Average(GroupStrategy):
    """``AVG``: contiguous runs, like pages; the first ``q % m`` members get one queue more.

    Five queues and two members: 0 1 2 | 3 4.
    """

    @property
    def name(self) -> str:
        return "AVG"

    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        size, extra = divmod(len(queues), len(members))

        def share(position: int) -> list[MessageQueue]:
            start = position * size + min(position, extra)
            return list(queues[start : start + size + (position < extra)])

        return share


@dataclass(frozen=True, slots=True)
class Circle(GroupStrategy):
    """``AVG_BY_CIRCLE``: dealt out like cards. Five queues and two members: 0 2 4 | 1 3."""

    @property
    def name(self) -> str:
        return "AVG_BY_CIRCLE"

    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        return lambda position: list(queues[position :: len(members)])


@dataclass(frozen=True, slots=True)
class Config(GroupStrategy):
    """``CONFIG``: exactly the queues given, whatever the topic has and whoever else is there."""

    queues: Iterable[MessageQueue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", tuple(self.queues))
        for queue in self.queues:
            if not isinstance(queue, MessageQueue):
                raise ArgumentError("queues", queue, "give MessageQueue(topic, broker, queue_id) values")

    @property
    def name(self) -> str:
        return "CONFIG"

    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        return lambda position: list(self.queues)


@dataclass(frozen=True, slots=True)
class ConsistentHash(GroupStrategy):
    """``CONSISTENT_HASH``: a ring with ``virtual_nodes`` places for each member.

    A queue goes to the first place clockwise, at or after its own hash. Few queues move when a member comes or
    goes; the shares are uneven. ``hash`` gives the place of a text on the ring; all members must use the same.
    Without virtual nodes nobody gets a queue, as in Java.
    """

    virtual_nodes: int = 10
    hash: Callable[[str], int] = ring_hash

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise ArgumentError("virtual_nodes", self.virtual_nodes, "give 0 or more; Java's default is 10")

    @property
    def name(self) -> str:
        return "CONSISTENT_HASH"

    def divide(self, group: str, queues: Queues, members: Members) -> Division:
        ring = self._ring(members)
        if not ring:
            return lambda position: []
        places = sorted(ring)
        owners = [ring[place] for place in places]
        owners.append(owners[0])  # beyond the last place the ring begins again
        shares: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        hash_of = self.hash
        for queue in queues:
            shares[owners[bisect_left(places, hash_of(str(queue)))]].append(queue)
        return lambda position: shares[members[position]]

    def _ring(self, members: Members) -> dict[int, str]:
        """Place → member. Where two meet the later one stands, as in Java's map."""
        ring: dict[int, str] = {}
        seen: set[str] = set()
        for member in members:
            # Java numbers the places of a member that is listed again onwards from those that it has.
            first = list(ring.values()).count(member) if member in seen else 0
            seen.add(member)
            for node in range(first, first + self.virtual_nodes):
                ring[self.hash(f"{member}-{node}")] = member
        return ring


@dataclass(frozen=True, slots=True)
class Custom:
    """Any function of group, member, queues and members as a strategy, with the checks that all strategies make."""

    function: Callable[[str, str, Queues, Members], Iterable[MessageQueue]]
    name: str

    def allocate(self, group: str, member: str, queues: Queues, members: Members) -> list[MessageQueue]:
        if not takes_part(group, member, queues, members):
            return []
        return list(self.function(group, member, queues, members))
