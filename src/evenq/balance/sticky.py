"""``STICKY``: even shares that move the fewest queues possible, by claims, without a coordinator.

Every queue has a lock on its broker, and who has the lock has the queue. A member knows the queues of its whole
subscription (q, all topics together), the members of its group (m), what it holds, and what the locks answer.
With ``floor, extra = divmod(q, m)`` it may hold ``floor`` queues, and one more with one of ``extra`` *tokens*.
A token is a lock too, on a made-up queue, and so is a *mark*: by it a member says "I have had my try for a token".
In its turn a member

1. gives back what belongs to an earlier q or m: tokens, marks, and queues that are no more;
2. holding more than ``floor`` without a token, tries for one; then puts its mark, and gives back what is over its
   allowance, the queues that it got last;
3. takes free queues up to its allowance;
4. holding ``floor`` without a token, when all members have put their marks and a token is still left: takes it,
   and one queue more.

Why that moves the fewest: in an even division nobody has more than ``floor + 1``, and ``extra`` members have that.
So a member must lose all that it has over ``floor``, except that ``extra`` of those members may keep one. Step 2
gives up exactly that, since no token goes to anybody else before all marks are there. Tokens and marks carry q and m
in their names, so those of an earlier time are in nobody's way.

A *turn* is one run of :func:`turn` by one member, begun with fresh lists of queues and members. A *round* is the
shortest time in which every member begins and ends a turn; the turns of different members may run into each other
action by action, in any order. When a settled group changes (members join, leave, crash, are replaced, queues come
and go, all at once if need be), it is settled again within 3 rounds, with the fewest moves, no two members more than
one queue apart, and never two of them with the same queue. The rounds begin when all members see the change and the
locks of those that crashed are free. A member that sees it later costs time, not moves: the others wait for its mark,
though not for ever (``patience``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from evenq.balance.ordering import sorted_members, sorted_queues
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["PATIENCE", "Action", "Ask", "Claims", "GiveBack", "Share", "Take", "is_made_up", "turn"]

_MADE_UP = "%STICKY%"

# Turns in a row that a member waits for the marks of others: one that hangs must not keep a queue from being read.
PATIENCE = 20


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Let these go. What is answered does not matter, and the turn may go on while a queue is still being left."""

    locks: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Lock all of these that can be had. The answer: those that are held now."""

    locks: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """See which of these nobody holds; they stay as they are. The answer: those that are free.

    A broker can only lock and unlock, so the way to ask is to lock under a name that all members use for asking,
    and to unlock at once what was granted. Two that ask do not disturb each other then, and a lock that is refused
    under this name does belong to a member.
    """

    locks: tuple[MessageQueue, ...]


Action: TypeAlias = GiveBack | Take | Ask
Answer: TypeAlias = Set[MessageQueue]
T = TypeVar("T")
Steps: TypeAlias = Generator[Action, Answer, T]


@dataclass(frozen=True)
class Share:
    """What one member is entitled to, and the names of the locks that decide it.

    >>> share = Share("b", ["a", "b"], [MessageQueue("orders", "broker-a", n) for n in range(5)])
    >>> share.floor, share.extra, [token.queue_id for token in share.tokens]
    (2, 1, [0])
    """

    me: str
    members: Sequence[str]
    queues: Sequence[MessageQueue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(sorted_members(set(self.members))))
        object.__setattr__(self, "queues", tuple(sorted_queues(set(self.queues))))
        if not self.queues:
            raise ArgumentError("queues", [], "give at least one queue of the subscription")
        if self.me not in self.members:
            raise ArgumentError("me", self.me, f"it must be one of the members {list(self.members)}")

    @property
    def floor(self) -> int:
        return len(self.queues) // len(self.members)

    @property
    def extra(self) -> int:
        return len(self.queues) % len(self.members)

    @cached_property
    def tokens(self) -> tuple[MessageQueue, ...]:
        return tuple(self._made_up("", number) for number in range(self.extra))

    @cached_property
    def marks(self) -> tuple[MessageQueue, ...]:
        """The marks of all members; none where there are no tokens to wait for."""
        return tuple(map(self._mark, self.members)) if self.extra else ()

    @property
    def mark(self) -> tuple[MessageQueue, ...]:
        return (self._mark(self.me),) if self.extra else ()

    @cached_property
    def locks(self) -> frozenset[MessageQueue]:
        """All that this member may hold. What else it holds is of an earlier time."""
        return frozenset((*self.queues, *self.tokens, *self.mark))

    @property
    def all_locks(self) -> tuple[MessageQueue, ...]:
        """All that any member may hold: what to unlock in the name of one that crashed, its tokens not forgotten."""
        return (*self.queues, *self.tokens, *self.marks)

    def from_my_place(self, locks: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
        """The locks, beginning at a place of this member's own: members that act at once then seldom meet."""
        start = self._rank * len(locks) // len(self.members)
        return (*locks[start:], *locks[:start])

    @cached_property
    def _rank(self) -> int:
        return self.members.index(self.me)

    def _mark(self, member: str) -> MessageQueue:
        return self._made_up(f"-{member}", 0)

    def _made_up(self, suffix: str, number: int) -> MessageQueue:
        # all on one broker, so that one request asks for them; every member finds the same one
        topic = f"{_MADE_UP}{len(self.queues)}-{len(self.members)}{suffix}"
        return MessageQueue(topic, self.queues[0].broker, number)


def is_made_up(lock: MessageQueue) -> bool:
    """Whether this is a token or a mark, and no queue of any topic."""
    return lock.topic.startswith(_MADE_UP)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a member holds at the end of its turn.

    Settled: nothing is left to do until members or queues change. Otherwise another turn should follow soon, with
    ``waited`` handed on to it.
    """

    queues: tuple[MessageQueue, ...]
    token: MessageQueue | None
    settled: bool
    waited: int = 0


def turn(share: Share, held: Iterable[MessageQueue], *, waited: int = 0, patience: int = PATIENCE) -> Steps[Claims]:
    """One turn of one member: yields actions, is sent their answers, returns the claims.

    ``held`` is everything that the member has locked, oldest first. It may be dropped after any action: all that
    it knows is in the locks, and the next turn begins from them. To drive it::

        steps = turn(share, held)
        try:
            action = next(steps)
            while True:
                action = steps.send(await carry_out(action))
        except StopIteration as end:
            claims = end.value
    """
    held = tuple(held)
    if stale := tuple(lock for lock in held if lock not in share.locks):
        yield GiveBack(stale)
    mine = [lock for lock in held if lock in share.locks and not is_made_up(lock)]
    token = next((lock for lock in held if lock in share.tokens), None)

    if token is None and len(mine) > share.floor:
        token = yield from _take_token(share, share.tokens)
    yield from _take(share, [mark for mark in share.mark if mark not in held], 1)
    allowance = share.floor + (token is not None)
    if over := tuple(mine[allowance:]):
        yield GiveBack(over)
        del mine[allowance:]

    yield from _fill(share, mine, allowance)

    waiting = False
    if token is None and len(mine) == share.floor and share.extra:
        free = yield Ask(share.tokens + share.marks)
        if left := [lock for lock in share.tokens if lock in free]:
            waiting = any(mark in free for mark in share.marks) and waited < patience
            if not waiting and (token := (yield from _take_token(share, left))):
                yield from _fill(share, mine, share.floor + 1)

    full = len(mine) == share.floor + (token is not None)
    return Claims(tuple(mine), token, full and not waiting, waited + 1 if waiting else 0)


def _take_token(share: Share, tokens: Sequence[MessageQueue]) -> Steps[MessageQueue | None]:
    taken = yield from _take(share, tokens, 1)
    return taken[0] if taken else None


def _fill(share: Share, mine: list[MessageQueue], most: int) -> Steps[None]:
    have = set(mine)
    mine += yield from _take(share, [queue for queue in share.queues if queue not in have], most - len(mine))


def _take(share: Share, locks: Sequence[MessageQueue], count: int) -> Steps[list[MessageQueue]]:
    """Take ``count`` of the locks, or as many as are free.

    Never more than are wanted, not even for a moment: another member that was refused would think them taken.
    The first try goes without asking; at a place of one's own it often succeeds. Only the answer that nothing is
    free ends the search, for a lock can also be refused because somebody is just asking for it.
    """
    taken: list[MessageQueue] = []
    free = locks
    while free and len(taken) < count:
        tried = share.from_my_place(free)[: count - len(taken)]
        granted = yield Take(tried)
        taken += [lock for lock in tried if lock in granted]
        locks = [lock for lock in locks if lock not in granted]
        if len(taken) < count:
            found = yield Ask(tuple(locks))
            free = [lock for lock in locks if lock in found]
    return taken
