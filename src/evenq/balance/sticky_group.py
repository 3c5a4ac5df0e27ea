"""A whole group under ``STICKY``, in memory: a lock table in place of the broker, and members that take turns.

The members run the same :func:`evenq.balance.sticky.turn` as the real rebalance loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSequence, Sequence, Set
from dataclasses import dataclass, field

from evenq.balance.sticky import Action, Ask, Claims, GiveBack, Share, Steps, Take, turn
from evenq.errors import StateError
from evenq.model import MessageQueue

__all__ = ["LockTable", "StickyGroup"]

Shuffle = Callable[[MutableSequence[str]], None]


@dataclass(slots=True)
class LockTable:
    """Who has locked what, as a broker keeps it: the first to ask has a lock until it gives it back."""

    # insertion order is the order of locking, so a member's locks come oldest first
    owners: dict[MessageQueue, str] = field(default_factory=dict)

    def take(self, member: str, locks: Iterable[MessageQueue]) -> set[MessageQueue]:
        return {lock for lock in locks if self.owners.setdefault(lock, member) == member}

    def give_back(self, member: str, locks: Iterable[MessageQueue]) -> None:
        for lock in locks:
            if self.owners.get(lock) == member:
                del self.owners[lock]

    def free(self, locks: Iterable[MessageQueue]) -> set[MessageQueue]:
        return {lock for lock in locks if lock not in self.owners}

    def held_by(self, member: str) -> list[MessageQueue]:
        return [lock for lock, owner in self.owners.items() if owner == member]

    def carry_out(self, member: str, action: Action) -> set[MessageQueue]:
        """The answer to one action of one member."""
        match action:
            case Take(locks):
                return self.take(member, locks)
            case Ask(locks):
                return self.free(locks)
            case GiveBack(locks):
                self.give_back(member, locks)
                return set()


class StickyGroup:
    """Members that share queues by claims.

    >>> group = StickyGroup()
    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(5)]
    >>> group.settle(["x", "y"], queues)
    2
    >>> {member: [queue.queue_id for queue in share] for member, share in group.assignment().items()}
    {'x': [0, 1, 4], 'y': [2, 3]}
    """

    # the rule needs at most 3; more means that it is broken
    LIMIT = 10

    def __init__(self) -> None:
        self.locks = LockTable()
        self.members: Sequence[str] = ()
        self.queues: Sequence[MessageQueue] = ()

    def assignment(self) -> dict[str, list[MessageQueue]]:
        known = set(self.queues)
        return {member: sorted(lock for lock in self.locks.held_by(member) if lock in known) for member in self.members}

    def settle(
        self, members: Iterable[str], queues: Iterable[MessageQueue], shuffle: Shuffle = lambda order: None
    ) -> int:
        """Change to these members and queues; gives the rounds until nobody had anything left to do.

        The locks of members that are gone are free from the start. In a round every member takes its turn, one
        after the other; ``shuffle`` may change the order before each round.
        """
        self.members, self.queues = tuple(members), tuple(queues)
        shares = {member: Share(member, self.members, self.queues) for member in self.members}
        for gone in set(self.locks.owners.values()) - set(self.members):
            self.locks.give_back(gone, self.locks.held_by(gone))
        waited = dict.fromkeys(self.members, 0)
        for number in range(1, self.LIMIT + 1):
            order = list(self.members)
            shuffle(order)
            claims = {
                member: run(turn(shares[member], self.locks.held_by(member), waited=waited[member]), self.locks, member)
                for member in order
            }
            if all(claim.settled for claim in claims.values()):
                return number
            waited = {member: claim.waited for member, claim in claims.items()}
        raise StateError(
            f"{len(self.members)} members and {len(self.queues)} queues: not settled in {self.LIMIT} rounds"
        )


def run(steps: Steps[Claims], locks: LockTable, member: str) -> Claims:
    """Drive one turn to its end, undisturbed."""
    return drive(steps, lambda action: locks.carry_out(member, action))


def drive(steps: Steps[Claims], answer: Callable[[Action], Set[MessageQueue]]) -> Claims:
    """Drive one turn to its end with these answers."""
    try:
        action = next(steps)
        while True:
            action = steps.send(answer(action))
    except StopIteration as end:
        claims: Claims = end.value
        return claims
