"""Hand-over locks: a queue is read by its new holder only after the old one has let it go.

The lock is the broker's ``LOCK_BATCH_MQ``, taken under the name ``HANDOVER-<group>``, never under the group's own
name: the real broker sends every retry of a group straight to the dead letter queue while any lock of that group's
own name is held.

When all members of a group die together, nobody is left who could unlock in their names, and their locks stay on the
broker for up to a minute. A broker does not say whose a lock is. So a member that is refused for a second asks all of
them which locks they have, twice. A lock that none of them has is *orphaned*: its queue is then locked by a *spare*
lock, under the name ``HANDOVER-2-<group>``, until the first lock has ended. Whoever holds the queue by then exchanges
the spare for the first lock. Spares can be orphaned, too, when the group dies again within the minute: each queue has
several.

Members need not know the same of a lock. So whoever is granted one looks for a holder by another lock of the queue,
before the lock counts:

========================== ========================================== ==============================================
lock that was granted      looks for a holder by                      where there is one
========================== ========================================== ==============================================
the first                  locking the spares, for a moment           the first lock is given back: it is refused
the first, while a spare   the same with the other spares, and asking the same
is orphaned                all members whether they have a lock
a spare                    asking all members whether they have one   the spare is given back: it is refused
========================== ========================================== ==============================================

A member that was granted the first lock keeps the spares that it locked until it names the queue to members that ask. A
member that is asking names the queues that it asks about. So if two members check the same queue at the same time, at
least one of them sees the other. A renewal is treated like a new grant unless the lock was ours all the time, on the
same connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

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
# The numbers of the locks of a queue: the first one, and the spares behind it.
FIRST, SPARES = 0, 3

# Gives the locks that living members have beside this one; None where one of them does not tell.
LocksOfOthers = Callable[[], Awaitable[Set[MessageQueue] | None]]


class Locks(Protocol):
    """Locks on queues."""

    # those that another member had when ours were asked for last; what a broker does not answer for is not among them
    refused: Set[MessageQueue]

    async def take(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]: ...
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
        """Give ours back, or those of ``owner``; what a broker does not take now is offered again."""
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

    async def take(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
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


class _Lock(NamedTuple):
    """A lock of a queue: the first one, or a spare."""

    queue: MessageQueue
    number: int

    @property
    def on_the_wire(self) -> MessageQueue:
        """What the broker is asked to lock. Later spares are locks on made-up queues, so one request asks for all."""
        if self.number < 2:
            return self.queue
        return MessageQueue(f"%SPARE-{self.number}%{self.queue.topic}", self.queue.broker, self.queue.queue_id)


def _all(queue: MessageQueue) -> list[_Lock]:
    return [_Lock(queue, number) for number in range(FIRST, SPARES + 1)]


def _spares(queue: MessageQueue) -> list[_Lock]:
    return _all(queue)[1:]


def _by_request(locks: Iterable[_Lock]) -> list[list[_Lock]]:
    """Those of one broker and one name together."""
    parts: defaultdict[tuple[str, bool], list[_Lock]] = defaultdict(list)
    for lock in locks:
        parts[lock.queue.broker, lock.number == FIRST].append(lock)
    return list(parts.values())


@dataclass(frozen=True, slots=True)
class _Answer:
    """The locks that a broker granted, the connection on which we asked, and when."""

    granted: set[_Lock]
    channel: Channel
    asked_at: float


@dataclass(frozen=True, slots=True)
class _Told:
    """What brokers granted and refused; those that did not answer are missing."""

    granted: set[_Lock]
    refused: set[_Lock]


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
        self._spare_name = f"HANDOVER-2-{group}"
        self._others = others
        self._client_id = client_id
        self._address_of = address_of
        self._connect = connect
        self._outages = outages or Outages()
        self._clock = clock
        # of every lock that was granted to us and not given back
        self._leases: dict[MessageQueue, Lease] = {}
        self._owed = OwedReturns(self._unlock, LOCK_LIFE_S, clock)
        self._refusals: dict[_Lock, _Refusal] = {}
        # when the others were asked last, to find orphans and to confirm locks
        self._asked_at = self._confirmed_at = -inf
        # locks whose owner is dead, until they have ended
        self._orphaned: dict[_Lock, float] = {}
        # the numbers of the spares that we have
        self._spares: dict[MessageQueue, int] = {}
        # queues whose locks are ours if nobody else tells that he has one
        self._confirming: Counter[MessageQueue] = Counter()
        self.failures = 0
        self.refused: Set[MessageQueue] = frozenset()

    def in_order(self, address_of: Callable[[str], str]) -> None:
        """Lock under the group's own name from now on, as Java's orderly members do: they and we exclude each other.

        A group in order has no retries that such a lock could lead astray. Java's members lock at masters only.
        """
        self._name, self._address_of, self._others = self._group, address_of, None

    @property
    def owned(self) -> set[MessageQueue]:
        """The queues whose locks were granted to us and not given back: what others are told who ask."""
        return {queue for queue, lease in self._leases.items() if lease.locked} | self._confirming.keys()

    @property
    def temporary(self) -> bool:
        return bool(self._spares)

    async def take(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Try for all of them, one request a broker; gives those that are ours now. Renews what is ours already."""
        queues = list(queues)
        for queue in queues:
            if (lease := self._leases.get(queue)) is not None and lease.lost:
                # whoever held the queue by that lock has let it go
                del self._leases[queue]
        answers = await asyncio.gather(*(self._take_first(part) for part in by_broker(queues).values()))
        granted = set().union(*(granted for granted, _ in answers))
        refused = set().union(*(refused for _, refused in answers))
        if orphaned := {lock.queue for lock in refused if lock.number == FIRST and lock in self._orphaned}:
            by_spare, refused_spares = await self._take_spares(orphaned)
            granted |= by_spare
            refused |= refused_spares
        await self._find_orphans({lock for lock in refused if lock.queue not in granted})
        self.refused = {lock.queue for lock in refused} - granted
        return granted

    async def _take_first(
        self, queues: Iterable[MessageQueue], *, renewing: bool = False
    ) -> tuple[set[MessageQueue], set[_Lock]]:
        """Ask for the first locks of queues of one broker. Gives the queues that are ours, and the locks that others
        have. A new lock is given back where another member holds the queue, and where that is not known, unless it is a
        renewal."""
        firsts = [_Lock(queue, FIRST) for queue in queues]
        answer = await self._try(firsts, self._client_id, renewing=renewing)
        if answer is None:
            return set(), set()
        ours, refused = self._still_ours(answer), set(firsts) - answer.granted
        self._grant(ours, answer)
        if new := {lock.queue for lock in answer.granted} - ours:
            spares = {spare for queue in new for spare in _spares(queue)}
            checked = spares - self._orphaned.keys()
            free = await self._try_all(checked, self._client_id, renewing=renewing)
            refused |= free.refused
            clear = new - {spare.queue for spare in checked - free.granted}
            doubtful = clear & {spare.queue for spare in spares - checked}
            self._grant(clear - doubtful, answer)
            confirmed, theirs = await self._confirm(dict.fromkeys(doubtful, answer))
            ours |= clear - doubtful | confirmed
            refused |= {_Lock(queue, FIRST) for queue in theirs}
            not_ours = new - ours
            # only now: who gets a spare from here on is told that we have the first lock
            await self._give_back(free.granted - {_Lock(queue, self._spares.get(queue, FIRST)) for queue in not_ours})
            if renewing:
                not_ours &= {lock.queue for lock in refused}
            await self._give_back(_Lock(queue, FIRST) for queue in not_ours)
        exchanged = {lock.queue for lock in answer.granted} & ours & self._spares.keys()
        await self._give_back([_Lock(queue, self._spares.pop(queue)) for queue in exchanged])
        return ours, refused

    def _still_ours(self, answer: _Answer) -> set[MessageQueue]:
        """Of what was granted, what was ours before without a gap; all of it where there are no spares."""
        granted = {lock.queue for lock in answer.granted}
        if self._others is None:
            return granted
        return {
            queue
            for queue in granted
            if (lease := self._leases.get(queue)) is not None and lease.counts_on(answer.channel)
        }

    def _grant(self, queues: Iterable[MessageQueue], answer: _Answer) -> None:
        for queue in queues:
            self.lease(queue).granted(answer.channel, answer.asked_at)

    async def _take_spares(
        self, queues: Iterable[MessageQueue], *, renewing: bool = False
    ) -> tuple[set[MessageQueue], set[_Lock]]:
        """Ask for a spare lock of each queue: the one that we have, or the first that is not orphaned. Gives the queues
        that are ours, and the locks that others have. A new lock is given back where another member holds the queue,
        and where that is not known, unless it is a renewal."""
        wanted = [spare for queue in queues if (spare := self._usable_spare(queue)) is not None]
        ours, refused = set[MessageQueue](), set[_Lock]()
        new: dict[MessageQueue, _Answer] = {}
        for part, answer in await self._try_each(wanted, self._client_id, renewing=renewing):
            kept = self._still_ours(answer) & self._spares.keys()
            self._grant(kept, answer)
            ours |= kept
            refused |= set(part) - answer.granted
            new |= dict.fromkeys({lock.queue for lock in answer.granted} - kept, answer)
        confirmed, theirs = await self._confirm(new)
        for spare in wanted:
            if spare.queue in confirmed:
                self._spares[spare.queue] = spare.number
            elif spare.queue in theirs:
                refused.add(spare)
        not_ours = new.keys() - confirmed
        ours |= confirmed
        await self._give_back(spare for spare in wanted if spare.queue in (theirs if renewing else not_ours))
        return ours, refused

    def _usable_spare(self, queue: MessageQueue) -> _Lock | None:
        if (number := self._spares.get(queue)) is not None:
            return _Lock(queue, number)
        return next((spare for spare in _spares(queue) if spare not in self._orphaned), None)

    def _can_confirm(self, now: float) -> bool:
        return now - self._confirmed_at >= ORPHAN_PAUSE_S

    async def _confirm(self, granted: Mapping[MessageQueue, _Answer]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Which of these queues nobody else tells of, and are ours then; and which somebody does. Neither where
        somebody does not tell, or the others have just been asked."""
        assert self._others is not None
        now = self._clock()
        if not granted or not self._can_confirm(now):
            return set(), set()
        self._confirmed_at = now
        # of two that ask at the same time at least one must hear of the other
        self._confirming.update(granted.keys())
        try:
            told = await self._others()
            if told is None:
                return set(), set()
            theirs = granted.keys() & told
            confirmed = granted.keys() - theirs
            for queue in confirmed:
                self._grant([queue], granted[queue])
        finally:
            self._confirming.subtract(granted.keys())
            self._confirming = +self._confirming
        self._orphaned = {lock: at for lock, at in self._orphaned.items() if lock.queue not in theirs}
        return confirmed, theirs

    async def _find_orphans(self, refused: Set[_Lock]) -> None:
        """Notice locks that belong to nobody who lives, of these that were refused."""
        if self._others is None:
            return
        now = self._clock()
        self._orphaned = {lock: at for lock, at in self._orphaned.items() if now - at < LOCK_LIFE_S}
        for lock in refused:
            self._refusals.setdefault(lock, _Refusal(now, now + ORPHAN_AFTER_S))
        late = {
            lock: self._refusals[lock]
            for lock in refused - self._orphaned.keys()
            if now - self._refusals[lock].since >= ORPHAN_AFTER_S
        }
        if any(now >= each.ask_at for each in late.values()) and now - self._asked_at >= ORPHAN_PAUSE_S:
            self._asked_at = now
            told = await self._others()
            nobodys = set() if told is None else {lock for lock in late if lock.queue not in told}
            found = {lock for lock in nobodys if late[lock].nobodys}
            for lock, refusal in late.items():
                refusal.told(lock in nobodys, now)
            self._orphaned |= dict.fromkeys(found, now)
            if found:
                queues = ", ".join(map(str, sorted({lock.queue for lock in found})))
                log.warning("the locks on %s belong to members that are gone", queues)

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
        """Those that :meth:`take` would get now. A broker cannot be asked that, so each is locked in a name that all
        members use for asking, and unlocked at once: a lock that is refused to this name does belong to a member.

        Only queues that are ``is_real`` have spares. Who asks before it takes would never find out otherwise that
        their locks are orphaned.
        """
        first = await self._try_all([_Lock(queue, FIRST) for queue in queues], ASKING)
        granted = {lock.queue for lock in first.granted}
        await self._release(first.granted, ASKING)
        if self._others is None:
            return granted
        spares = {spare for queue in granted if is_real(queue) for spare in _spares(queue)}
        doubtful = {spare.queue for spare in spares & self._orphaned.keys()}
        by_spare = {
            spare
            for lock in first.refused & self._orphaned.keys()
            if (spare := self._usable_spare(lock.queue)) is not None
        }
        second = await self._try_all(spares - self._orphaned.keys() | by_spare, ASKING)
        await self._release(second.granted, ASKING)
        refused = {lock for lock in first.refused | second.refused if is_real(lock.queue)}
        await self._find_orphans(refused)
        granted -= {spare.queue for spare in spares - self._orphaned.keys() - second.granted}
        if not self._can_confirm(self._clock()):
            return granted - doubtful
        return granted | {spare.queue for spare in by_spare & second.granted}

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Give them back: ours, or those of a member that is gone."""
        left = list(queues)
        locks = [_Lock(queue, FIRST) for queue in left]
        if owner is None:
            for queue in left:
                self._leases.pop(queue, None)
                for lock in _all(queue):
                    self._refusals.pop(lock, None)
                if (number := self._spares.pop(queue, None)) is not None:
                    locks.append(_Lock(queue, number))
        elif self._others is not None:
            locks += [spare for queue in left for spare in _spares(queue)]
        await self._release(locks, owner or self._client_id)

    async def release_owed(self) -> None:
        """Give back what brokers did not take the first time. To be called often."""
        await self._owed.give_back()

    def alive(self, members: Collection[str]) -> None:
        """These members are in the group: what they have is not to be given back in their names."""
        self._owed.keep_all_of(set(members) - {self._client_id})

    async def _renew(self, queues: list[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        kept, refused_locks = await self._take_first(queues, renewing=True)
        refused = {lock.queue for lock in refused_locks} - kept
        if by_spare := refused & self._spares.keys():
            # until it can be exchanged
            still, gone = await self._take_spares(by_spare, renewing=True)
            kept, refused = kept | still, refused - by_spare | {lock.queue for lock in gone}
        for queue in refused:
            self._spares.pop(queue, None)
            if (lease := self._leases.get(queue)) is not None:
                lease.refused()
        return kept, refused

    async def _try_all(self, locks: Collection[_Lock], owner: str, *, renewing: bool = False) -> _Told:
        answers = await self._try_each(locks, owner, renewing=renewing)
        granted = set().union(*(answer.granted for _, answer in answers))
        return _Told(granted, set().union(*(part for part, _ in answers)) - granted)

    async def _try_each(
        self, locks: Collection[_Lock], owner: str, *, renewing: bool = False
    ) -> list[tuple[list[_Lock], _Answer]]:
        """By request: what was asked for, and the answer. Those without an answer are left out."""
        parts = _by_request(locks)
        answers = await asyncio.gather(*(self._try(part, owner, renewing=renewing) for part in parts))
        return [(part, answer) for part, answer in zip(parts, answers, strict=True) if answer is not None]

    async def _try(self, locks: list[_Lock], owner: str, *, renewing: bool = False) -> _Answer | None:
        """Ask one broker for locks, all first ones or all spares. None where it did not answer."""
        broker, lock_name = locks[0].queue.broker, self._name_of(locks[0])
        purpose = "renewal of the locks on" if renewing else "locking of"
        name = f"{purpose} queues of {broker} for group {self._group}"
        asked = {lock.on_the_wire: lock for lock in locks}
        try:
            address = self._address_of(broker)
            async with self._owed.trying(asked, owner, lock_name):
                # before the request: on a connection that breaks meanwhile nothing counts that was granted
                channel, asked_at = await self._connect(address), self._clock()
                told = await self._remote.lock(address, lock_name, owner, list(asked))
                self._owed.keep(told, owner, lock_name)
        except RemoteError as error:
            self.failures += 1
            self._outages.failed(name, error)
            return None
        self._outages.ended(name)
        granted = {asked[queue] for queue in told if queue in asked}
        for lock in granted:
            self._refusals.pop(lock, None)
        return _Answer(granted, channel, asked_at)

    def _name_of(self, lock: _Lock) -> str:
        return self._name if lock.number == FIRST else self._spare_name

    async def _give_back(self, locks: Iterable[_Lock]) -> None:
        await self._release(locks, self._client_id)

    async def _release(self, locks: Iterable[_Lock], owner: str) -> None:
        """Unlock; what a broker does not take now is offered again."""
        await asyncio.gather(*(self._release_at(part, owner) for part in _by_request(locks)))

    async def _release_at(self, locks: list[_Lock], owner: str) -> None:
        queues, lock_name = [lock.on_the_wire for lock in locks], self._name_of(locks[0])
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
