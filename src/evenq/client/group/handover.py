"""Hand-over locks: a queue is read by its new holder only after the old one has let it go.

The lock is the broker's ``LOCK_BATCH_MQ``, taken under the name ``HANDOVER-<group>``, never under the group's own
name: the real broker sends every retry of a group straight to the dead letter queue while any lock of that group's
own name is held.

When all members of a group die together, nobody is left who could unlock in their names, and their locks stay on the
broker for up to a minute. A broker does not say whose a lock is. So a member that is refused for a second asks all of
them which locks they have, twice. A lock that none of them has is *orphaned*: its queue is then locked under a second
name, ``HANDOVER-2-<group>``, by everybody who wants it, until the lock under the first name has ended. Who holds the
queue by then exchanges the second lock for the first; whoever else knows that the lock was orphaned needs both.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Set
from math import inf
from typing import Protocol

from evenq.client.group.held import Channel, Lease
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
# was granted in the very moment of the first question is known to its owner at the second.
ORPHAN_AFTER_S = 1.0
ORPHAN_PAUSE_S = 0.5

# Gives the locks that living members have beside this one; None where one of them does not tell.
LocksOfOthers = Callable[[], Awaitable[Set[MessageQueue] | None]]


class Locks(Protocol):
    """Locks on queues. ``owner`` is this member where none is named."""

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]: ...
    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]: ...
    def lease(self, queue: MessageQueue) -> Lease: ...

    @property
    def temporary(self) -> bool:
        """Whether some lock is to be exchanged for a better one as soon as it can be had, by renewing it."""
        ...

    async def free(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]: ...
    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None: ...


class ClaimLocks(Locks, Protocol):
    """Locks on queues, by which members also make claims. ``failures`` counts the requests that failed: a lock that
    was asked for by one of them may have been granted or given back, or not."""

    failures: int


class NoLocks:
    """Every queue may be had by everybody, as in broadcasting."""

    temporary = False

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]:
        return set(queues)

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        return set(queues), set()

    def lease(self, queue: MessageQueue) -> Lease:
        return Lease()

    async def free(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        return set(queues)

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Nothing was taken."""


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
        # since when a lock was refused to us each time, and when nobody had it that told us
        self._refused_at: dict[MessageQueue, float] = {}
        self._nobodys_at: dict[MessageQueue, float] = {}
        self._asked_at = -inf
        # locks whose owner is dead, until they have ended; and those that we have under the second name
        self._orphaned: dict[MessageQueue, float] = {}
        self._second: set[MessageQueue] = set()
        self.failures = 0

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
        name = owner or self._client_id
        queues = list(queues)
        if owner is None:
            for queue in queues:
                if (lease := self._leases.get(queue)) is not None and lease.lost:
                    # whoever held the queue by that lock has let it go
                    del self._leases[queue]
        answers = await asyncio.gather(*(self._take(part, name) for part in by_broker(queues).values()))
        granted = set().union(*(granted for granted, _ in answers))
        refused = set().union(*(refused for _, refused in answers))
        if owner is None:
            for queue in granted:
                self._refused_at.pop(queue, None)
            await self._look_for_orphans(refused)
        if orphaned := (refused | granted) & self._orphaned.keys():
            second = await self._take_orphaned(orphaned, name)
            # where the first lock has just ended, another member may still hold the queue by the second one
            await self.release(granted & orphaned - second, owner=owner)
            granted = granted - orphaned | second
        return granted

    async def _look_for_orphans(self, refused: Iterable[MessageQueue]) -> None:
        """Find out which of these locks belong to nobody who lives."""
        if self._others is None:
            return
        now = self._clock()
        self._orphaned = {queue: at for queue, at in self._orphaned.items() if now - at < LOCK_LIFE_S}
        for queue in refused:
            self._refused_at.setdefault(queue, now)
        late = {queue for queue in refused if now - self._refused_at[queue] >= ORPHAN_AFTER_S} - self._orphaned.keys()
        if not late or now - self._asked_at < ORPHAN_PAUSE_S:
            return
        self._asked_at = now
        living = await self._others()
        nobodys = set() if living is None else late - living
        found = {queue for queue in nobodys if now - self._nobodys_at.get(queue, inf) >= ORPHAN_PAUSE_S}
        self._nobodys_at = {queue: self._nobodys_at.get(queue, now) for queue in nobodys - found}
        self._orphaned |= dict.fromkeys(found, now)
        if found:
            log.warning("the locks on %s belong to members that are gone", ", ".join(map(str, sorted(found))))

    async def _take_orphaned(self, queues: Iterable[MessageQueue], owner: str) -> set[MessageQueue]:
        answers = [self._take(part, owner, self._second_name) for part in by_broker(queues).values()]
        granted = set().union(*(granted for granted, _ in await asyncio.gather(*answers)))
        if owner == self._client_id:
            self._second |= granted
        return granted

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Those that are still ours, and those that are not. Of a broker that does not answer nothing is known."""
        answers = await asyncio.gather(*(self._renew(part) for part in by_broker(queues).values()))
        kept = set().union(*(kept for kept, _ in answers))
        return kept, set().union(*(lost for _, lost in answers))

    def lease(self, queue: MessageQueue) -> Lease:
        """What is known of our lock on the queue, kept up to date. Unlocked where there is none."""
        return self._leases.setdefault(queue, Lease(self._clock))

    async def free(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Those that nobody holds. A broker cannot be asked that, so each is locked in a name that all members use
        for asking, and unlocked at once: a lock that is refused to this name does belong to a member."""
        wanted = list(queues)
        granted = await self.take(wanted, owner=ASKING)
        await self.release(granted, owner=ASKING)
        return granted

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Give them back: ours, or those of a member that is gone."""
        left = list(queues)
        if owner is None:
            for queue in left:
                self._leases.pop(queue, None)
                self._refused_at.pop(queue, None)
        name = owner or self._client_id
        releases = [self._release(part, name, self._name) for part in by_broker(left).values()]
        # a member that is gone may have had locks under both names
        second = left if owner not in (None, ASKING) else [queue for queue in left if queue in self._orphaned]
        if self._others is not None and second:
            releases += [self._release(part, name, self._second_name) for part in by_broker(second).values()]
        if owner is None:
            self._second.difference_update(left)
        await asyncio.gather(*releases)

    async def _renew(self, queues: list[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        name = f"renewal of the locks on queues of {queues[0].broker} for group {self._group}"
        try:
            granted = await self._lock(queues, self._client_id, self._name)
            second = [queue for queue in queues if queue in self._second]
            if kept := [queue for queue in second if queue not in granted]:
                granted |= await self._lock(kept, self._client_id, self._second_name)
        except RemoteError as error:
            self.failures += 1
            self._outages.failed(name, error)
            return set(), set()
        self._outages.ended(name)
        if better := [queue for queue in second if queue not in kept]:
            self._second.difference_update(better)
            await self._release(better, self._client_id, self._second_name)
        refused = set(queues) - granted
        for queue in refused & self._leases.keys():
            self._leases[queue].refused()
        return granted, refused

    async def _take(
        self, queues: list[MessageQueue], owner: str, lock_name: str = ""
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Those that were granted, and those that were refused: nothing where the broker did not answer."""
        name = f"locking of queues of {queues[0].broker} for group {self._group}"
        try:
            granted = await self._lock(queues, owner, lock_name or self._name)
        except RemoteError as error:
            self.failures += 1
            self._outages.failed(name, error)
            return set(), set()
        self._outages.ended(name)
        return granted, set(queues) - granted

    async def _lock(self, queues: list[MessageQueue], owner: str, lock_name: str) -> set[MessageQueue]:
        address = self._address_of(queues[0].broker)
        # before the request: on a connection that breaks meanwhile nothing counts that was granted
        channel, asked_at = await self._connect(address), self._clock()
        granted = await self._remote.lock(address, lock_name, owner, queues)
        if owner == self._client_id:
            for queue in granted:
                self.lease(queue).granted(channel, asked_at)
        return granted

    async def _release(self, queues: list[MessageQueue], owner: str, lock_name: str) -> None:
        try:
            await self._remote.unlock(self._address_of(queues[0].broker), lock_name, owner, queues)
        except RemoteError as error:
            self.failures += 1
            log.warning("hand-over locks of %s on %s end by themselves in 60 s: %s", owner, queues[0].broker, error)
