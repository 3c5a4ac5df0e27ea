"""Hand-over locks: a queue is read by its new holder only after the old one has let it go.

The lock is the broker's ``LOCK_BATCH_MQ``, taken under the name ``HANDOVER-<group>``, never under the group's own
name: the real broker sends every retry of a group straight to the dead letter queue while any lock of that group's
own name is held.

When all members of a group die together, nobody is left who could unlock in their names, and their locks stay on the
broker for up to a minute. A broker does not say whose a lock is. So a member that is refused for a second asks all of
them which locks they have, twice. A lock that none of them has is *orphaned*: its queue is then locked under a second
name, ``HANDOVER-2-<group>``, until the lock under the first name has ended. Who holds the queue by then exchanges the
second lock for the first.

Members need not know the same of a lock. So whoever is granted one looks for a holder under the other name, before
the lock counts:

======================= ============================================== ===========================================
lock granted under      looks for a holder by                          where there is one
======================= ============================================== ===========================================
the first name          locking under the second name, for a moment    the first lock is given back: it is refused
the second name         asking the others whether they have a lock     the second lock is given back: it is refused
======================= ============================================== ===========================================

A member that has been granted the first lock keeps the second until it tells of the first, so of two at the same time
at least one sees the other. A renewal is treated like a new grant unless the lock was ours all the time, on the same
connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from dataclasses import dataclass
from math import inf
from typing import Protocol

from evenq.client.group.held import Channel, Lease
from evenq.client.group.owed import OwedReturns
from evenq.client.net.remote import Remote, by_broker
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.supervision import Outages

__all__ = ["ClaimLocks", "HandoverLocks", "Locks", "NoLocks"]

log = logging.getLogger(__name__)

ASKING = "ASKING"

# Brokers keep a lock that nobody renews for so long.
LOCK_LIFE_S = 60.0
# A lock that was refused for so long may be orphaned; the members are asked now and after a pause, so that a lock that
# was granted in the very moment of the first question is known to its owner at the second. While a member has the lock,
# or somebody does not tell, the pause doubles: every member that waits asks all the others.
ORPHAN_AFTER_S = 1.0
ORPHAN_PAUSE_S = 0.5
ORPHAN_PAUSE_MAX_S = 8.0

# Gives the locks that living members have beside this one; None where one of them does not tell.
LocksOfOthers = Callable[[], Awaitable[Set[MessageQueue] | None]]


class Locks(Protocol):
    """Locks on queues. ``owner`` is this member where none is named."""

    # those that another member had when ours were asked for last; what a broker does not answer for is not among them
    refused: Set[MessageQueue]

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]: ...
    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]: ...
    def lease(self, queue: MessageQueue) -> Lease: ...

    @property
    def temporary(self) -> bool:
        """Whether some lock is to be exchanged for a better one as soon as it can be had, by renewing it."""
        ...

    async def free(
        self, queues: Iterable[MessageQueue], *, is_real: Callable[[MessageQueue], bool] = lambda queue: True
    ) -> set[MessageQueue]: ...
    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Give them back; those that a broker does not take now are offered again."""
        ...

    async def release_owed(self) -> None: ...

    def alive(self, members: Collection[str]) -> None: ...


class ClaimLocks(Locks, Protocol):
    """Locks on queues, by which members also make claims. ``failures`` counts the requests that failed: a lock that
    was asked for by one of them may have been granted or given back, or not."""

    failures: int


class NoLocks:
    """Every queue may be had by everybody, as in broadcasting."""

    temporary = False
    refused: Set[MessageQueue] = frozenset()

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]:
        return set(queues)

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        return set(queues), set()

    def lease(self, queue: MessageQueue) -> Lease:
        return Lease()

    async def free(
        self, queues: Iterable[MessageQueue], *, is_real: Callable[[MessageQueue], bool] = lambda queue: True
    ) -> set[MessageQueue]:
        return set(queues)

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Nothing was taken."""

    async def release_owed(self) -> None:
        """Nothing is owed."""

    def alive(self, members: Collection[str]) -> None:
        """That makes no difference."""


@dataclass(slots=True)
class _Refusal:
    """A lock that is refused to us each time: since when, and when the others are asked about it next."""

    since: float
    ask_at: float
    pause_s: float = ORPHAN_PAUSE_S
    # whether nobody had it at the last question
    nobodys: bool = False

    def told(self, nobodys: bool, now: float) -> None:
        self.nobodys = nobodys
        self.pause_s = ORPHAN_PAUSE_S if nobodys else min(ORPHAN_PAUSE_MAX_S, self.pause_s * 2)
        self.ask_at = now + self.pause_s


@dataclass(frozen=True, slots=True)
class _Answer:
    """The locks that a broker granted, the connection on which we asked, and when."""

    granted: set[MessageQueue]
    channel: Channel
    asked_at: float


class HandoverLocks:
    """The locks of one member of one group.

    ``address_of`` says where the locks of a broker's queues are, ``connect`` gives the connection to an address.
    ``others`` is asked when a lock may be orphaned; without it none is.
    """

    def __init__(
        self,
        remote: Remote,
        group: str,
        client_id: str,
        address_of: Callable[[str], str],
        connect: Callable[[str], Awaitable[Channel]],
        *,
        others: LocksOfOthers | None = None,
        outages: Outages | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remote = remote
        self._group = group
        self._name = f"HANDOVER-{group}"
        self._second_name = f"HANDOVER-2-{group}"
        self._others = others
        self._client_id = client_id
        self._address_of = address_of
        self._connect = connect
        self._outages = outages or Outages()
        self._clock = clock
        # of every lock that was granted to us and not given back
        self._leases: dict[MessageQueue, Lease] = {}
        self._owed = OwedReturns(self._unlock, LOCK_LIFE_S, clock)
        self._refusals: dict[MessageQueue, _Refusal] = {}
        # when the others were asked last, to find orphans and to confirm locks under the second name
        self._asked_at = self._confirmed_at = -inf
        # locks whose owner is dead, until they have ended; and those that we have under the second name
        self._orphaned: dict[MessageQueue, float] = {}
        self._second: set[MessageQueue] = set()
        self.failures = 0
        self.refused: Set[MessageQueue] = frozenset()

    def in_order(self, address_of: Callable[[str], str]) -> None:
        """Lock under the group's own name from now on, as Java's orderly members do: they and we exclude each other.

        A group in order has no retries that such a lock could lead astray. Java's members lock at masters only.
        """
        self._name, self._address_of, self._others = self._group, address_of, None

    @property
    def owned(self) -> set[MessageQueue]:
        """The locks that were granted to us and not given back: what others are told who ask."""
        return {queue for queue, lease in self._leases.items() if lease.locked}

    @property
    def temporary(self) -> bool:
        return bool(self._second)

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]:
        """Try for all of them, one request a broker; gives those that are ours now. Renews what is ours already."""
        queues = list(queues)
        if owner is not None:
            return await self._take_as(owner, queues)
        for queue in queues:
            if (lease := self._leases.get(queue)) is not None and lease.lost:
                # whoever held the queue by that lock has let it go
                del self._leases[queue]
        answers = await asyncio.gather(*(self._take_first(part, "locking of") for part in by_broker(queues).values()))
        granted = set().union(*(granted for granted, _ in answers))
        refused = set().union(*(refused for _, refused in answers))
        for queue in granted:
            self._refusals.pop(queue, None)
        if orphaned := await self._find_orphans(refused):
            second, held = await self._take_second(orphaned)
            # what may be ours and must not be used yet is asked for again
            await self._give_back(orphaned - second - held - self._second, self._second_name)
            granted |= second
        self.refused = refused
        return granted

    async def _take_as(self, owner: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        """The same in another name."""
        granted, refused = await self._try_as(owner, queues, self._name)
        if orphaned := (refused | granted) & self._orphaned.keys():
            second, _ = await self._try_as(owner, orphaned, self._second_name)
            # where the first lock has just ended, a member may still hold the queue by the second one
            await self.release(granted & orphaned - second, owner=owner)
            granted = granted - orphaned | second
        return granted

    async def _try_as(
        self, owner: str, queues: Iterable[MessageQueue], lock_name: str
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        parts = by_broker(queues).values()
        answers = await asyncio.gather(*(self._try(part, "locking of", owner, lock_name) for part in parts))
        told = [(part, answer.granted) for part, answer in zip(parts, answers, strict=True) if answer is not None]
        return set().union(*(granted for _, granted in told)), set().union(*(set(part) - has for part, has in told))

    async def _take_first(
        self, queues: list[MessageQueue], purpose: str
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock queues of one broker under the first name: those that are ours, and those that are another's. A new
        lock is ours when nobody has it under the second name."""
        answer = await self._try(queues, purpose, self._client_id, self._name)
        if answer is None:
            return set(), set()
        ours, refused = self._still_ours(answer), set(queues) - answer.granted
        self._grant(ours, answer)
        if new := answer.granted - ours:
            free = await self._try(new, purpose, self._client_id, self._second_name)
            if free is not None:
                self._grant(free.granted, answer)
                ours |= free.granted
                refused |= new - free.granted
        # only now: who gets the second lock from here on is told that we have the first
        await self._give_back((answer.granted & ours) & (new | self._second), self._second_name)
        self._second -= ours
        await self._give_back(new & refused, self._name)
        return ours, refused

    def _still_ours(self, answer: _Answer) -> set[MessageQueue]:
        """Of what was granted, what was ours before without a gap; all of it where there is no second name."""
        if self._others is None:
            return set(answer.granted)
        return {
            queue
            for queue in answer.granted
            if (lease := self._leases.get(queue)) is not None and lease.counts_on(answer.channel)
        }

    def _grant(self, queues: Iterable[MessageQueue], answer: _Answer) -> None:
        for queue in queues:
            self.lease(queue).granted(answer.channel, answer.asked_at)

    async def _take_second(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock queues under the second name: those that are ours, and those that are another's. A new lock is ours
        when no other member tells that it has a lock on the queue; where somebody does not tell, nothing is known."""
        assert self._others is not None
        parts = by_broker(queues).values()
        name = self._second_name
        answers = await asyncio.gather(*(self._try(part, "locking of", self._client_id, name) for part in parts))
        told = [(part, answer) for part, answer in zip(parts, answers, strict=True) if answer is not None]
        ours, refused, theirs = set[MessageQueue](), set[MessageQueue](), set[MessageQueue]()
        new: list[tuple[set[MessageQueue], _Answer]] = []
        for part, answer in told:
            kept = self._still_ours(answer) & self._second
            self._grant(kept, answer)
            ours |= kept
            refused |= set(part) - answer.granted
            new.append((answer.granted - kept, answer))
        now = self._clock()
        if any(granted for granted, _ in new) and now - self._confirmed_at >= ORPHAN_PAUSE_S:
            self._confirmed_at = now
            living = await self._others()
            for granted, answer in new:
                if living is None:
                    break
                free = granted - living
                self._grant(free, answer)
                self._second |= free
                ours |= free
                theirs |= granted & living
            for queue in theirs:
                self._orphaned.pop(queue, None)
            await self._give_back(theirs, self._second_name)
            refused |= theirs
        return ours, refused

    async def _find_orphans(self, refused: Set[MessageQueue]) -> set[MessageQueue]:
        """Which of these locks belong to nobody who lives."""
        if self._others is None:
            return set()
        now = self._clock()
        self._orphaned = {queue: at for queue, at in self._orphaned.items() if now - at < LOCK_LIFE_S}
        for queue in refused:
            self._refusals.setdefault(queue, _Refusal(now, now + ORPHAN_AFTER_S))
        late = {
            queue: self._refusals[queue]
            for queue in refused - self._orphaned.keys()
            if now - self._refusals[queue].since >= ORPHAN_AFTER_S
        }
        if any(now >= each.ask_at for each in late.values()) and now - self._asked_at >= ORPHAN_PAUSE_S:
            self._asked_at = now
            living = await self._others()
            nobodys = set() if living is None else late.keys() - living
            found = {queue for queue in nobodys if late[queue].nobodys}
            for queue, refusal in late.items():
                refusal.told(queue in nobodys, now)
            self._orphaned |= dict.fromkeys(found, now)
            if found:
                log.warning("the locks on %s belong to members that are gone", ", ".join(map(str, sorted(found))))
        return refused & self._orphaned.keys()

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Those that are still ours, and those that are not. Of a broker that does not answer nothing is known."""
        answers = await asyncio.gather(*(self._renew(part) for part in by_broker(queues).values()))
        kept = set().union(*(kept for kept, _ in answers))
        return kept, set().union(*(lost for _, lost in answers))

    def lease(self, queue: MessageQueue) -> Lease:
        """What is known of our lock on the queue, kept up to date. Unlocked where there is none."""
        return self._leases.setdefault(queue, Lease(self._clock))

    async def free(
        self, queues: Iterable[MessageQueue], *, is_real: Callable[[MessageQueue], bool] = lambda queue: True
    ) -> set[MessageQueue]:
        """Those that nobody holds. A broker cannot be asked that, so each is locked in a name that all members use
        for asking, and unlocked at once: a lock that is refused to this name does belong to a member.

        Of those that are ``is_real``, refused ones may be orphaned, and are free then: who asks before it takes would
        never find out otherwise.
        """
        wanted = list(queues)
        granted = await self.take(wanted, owner=ASKING)
        await self.release(granted, owner=ASKING)
        for queue in granted:
            self._refusals.pop(queue, None)
        known = set(self._orphaned)
        await self._find_orphans({queue for queue in wanted if queue not in granted and is_real(queue)})
        if orphaned := self._orphaned.keys() - known:
            more = await self.take(orphaned, owner=ASKING)
            await self.release(more, owner=ASKING)
            granted |= more
        return granted

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Give them back: ours, or those of a member that is gone."""
        left = list(queues)
        if owner is None:
            for queue in left:
                self._leases.pop(queue, None)
                self._refusals.pop(queue, None)
        name = owner or self._client_id
        releases = [self._release(part, name, self._name) for part in by_broker(left).values()]
        # a member that is gone may have had locks under both names
        ours = self._orphaned.keys() | self._second
        second = left if owner not in (None, ASKING) else [queue for queue in left if queue in ours]
        if self._others is not None and second:
            releases += [self._release(part, name, self._second_name) for part in by_broker(second).values()]
        if owner is None:
            self._second.difference_update(left)
        await asyncio.gather(*releases)

    async def release_owed(self) -> None:
        """Give back what brokers did not take the first time. To be called often."""
        await self._owed.give_back()

    def alive(self, members: Collection[str]) -> None:
        """These members are in the group: what they have is not to be given back in their names."""
        self._owed.keep_all_of(set(members) - {self._client_id})

    async def _renew(self, queues: list[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        kept, refused = await self._take_first(queues, "renewal of the locks on")
        if second := refused & self._second:
            # until it can be exchanged
            still, gone = await self._take_second(second)
            kept, refused = kept | still, refused - second | gone
        self._second -= refused
        for queue in refused & self._leases.keys():
            self._leases[queue].refused()
        return kept, refused

    async def _try(self, queues: Collection[MessageQueue], purpose: str, owner: str, lock_name: str) -> _Answer | None:
        """Lock queues of one broker; None where it did not answer."""
        queues = list(queues)
        name = f"{purpose} queues of {queues[0].broker} for group {self._group}"
        try:
            address = self._address_of(queues[0].broker)
            async with self._owed.trying(queues, owner, lock_name):
                # before the request: on a connection that breaks meanwhile nothing counts that was granted
                channel, asked_at = await self._connect(address), self._clock()
                answer = _Answer(await self._remote.lock(address, lock_name, owner, queues), channel, asked_at)
                self._owed.keep(answer.granted, owner, lock_name)
        except RemoteError as error:
            self.failures += 1
            self._outages.failed(name, error)
            return None
        self._outages.ended(name)
        return answer

    async def _give_back(self, queues: Iterable[MessageQueue], lock_name: str) -> None:
        parts = by_broker(queues).values()
        await asyncio.gather(*(self._release(part, self._client_id, lock_name) for part in parts))

    async def _release(self, queues: list[MessageQueue], owner: str, lock_name: str) -> None:
        try:
            await self._unlock(queues, owner, lock_name)
        except RemoteError:
            self.failures += 1
            self._owed.add(queues, owner, lock_name)

    async def _unlock(self, queues: list[MessageQueue], owner: str, lock_name: str) -> None:
        name = f"return of hand-over locks of {owner} to {queues[0].broker} for group {self._group}"
        try:
            await self._remote.unlock(self._address_of(queues[0].broker), lock_name, owner, queues)
        except RemoteError as error:
            self._outages.failed(name, error)
            raise
        self._outages.ended(name)
