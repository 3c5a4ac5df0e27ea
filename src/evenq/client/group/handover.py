"""Hand-over locks: a queue is read by its new holder only after the old one has let it go.

The lock is the broker's ``LOCK_BATCH_MQ``, taken under the name ``HANDOVER-<group>``, never under the group's own
name: the real broker sends every retry of a group straight to the dead letter queue while any lock of that group's
own name is held.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from evenq.client.group.held import Channel, Lease
from evenq.client.net.remote import Remote, by_broker
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.supervision import Outages

__all__ = ["ClaimLocks", "HandoverLocks", "Locks", "NoLocks"]

log = logging.getLogger(__name__)

ASKING = "ASKING"


class Locks(Protocol):
    """Locks on queues. ``owner`` is this member where none is named."""

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]: ...
    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]: ...
    def lease(self, queue: MessageQueue) -> Lease: ...
    async def free(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]: ...
    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None: ...


class ClaimLocks(Locks, Protocol):
    """Locks on queues, by which members also make claims. ``failures`` counts the requests that failed: a lock that
    was asked for by one of them may have been granted or given back, or not."""

    failures: int


class NoLocks:
    """Every queue may be had by everybody, as in broadcasting."""

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
    """

    def __init__(
        self,
        remote: Remote,
        group: str,
        client_id: str,
        address_of: Callable[[str], str],
        connect: Callable[[str], Awaitable[Channel]],
        *,
        outages: Outages | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remote = remote
        self._group = group
        self._name = f"HANDOVER-{group}"
        self._client_id = client_id
        self._address_of = address_of
        self._connect = connect
        self._outages = outages or Outages()
        self._clock = clock
        # of every lock that was granted to us and not given back
        self._leases: dict[MessageQueue, Lease] = {}
        self.failures = 0

    def in_order(self, address_of: Callable[[str], str]) -> None:
        """Lock under the group's own name from now on, as Java's orderly members do: they and we exclude each other.

        A group in order has no retries that such a lock could lead astray. Java's members lock at masters only.
        """
        self._name, self._address_of = self._group, address_of

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]:
        """Try for all of them, one request a broker; gives those that are ours now. Renews what is ours already."""
        name = owner or self._client_id
        queues = list(queues)
        if owner is None:
            for queue in queues:
                if (lease := self._leases.get(queue)) is not None and lease.lost:
                    # whoever held the queue by that lock has let it go
                    del self._leases[queue]
        granted = await asyncio.gather(*(self._take(part, name) for part in by_broker(queues).values()))
        return set().union(*granted)

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
        await asyncio.gather(*(self._release(part, owner or self._client_id) for part in by_broker(left).values()))

    async def _renew(self, queues: list[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        name = f"renewal of the locks on queues of {queues[0].broker} for group {self._group}"
        try:
            granted = await self._lock(queues, self._client_id)
        except RemoteError as error:
            self.failures += 1
            self._outages.failed(name, error)
            return set(), set()
        self._outages.ended(name)
        refused = set(queues) - granted
        for queue in refused & self._leases.keys():
            self._leases[queue].refused()
        return granted, refused

    async def _take(self, queues: list[MessageQueue], owner: str) -> set[MessageQueue]:
        name = f"locking of queues of {queues[0].broker} for group {self._group}"
        try:
            granted = await self._lock(queues, owner)
        except RemoteError as error:
            self.failures += 1
            self._outages.failed(name, error)
            return set()
        self._outages.ended(name)
        return granted

    async def _lock(self, queues: list[MessageQueue], owner: str) -> set[MessageQueue]:
        address = self._address_of(queues[0].broker)
        # before the request: on a connection that breaks meanwhile nothing counts that was granted
        channel, asked_at = await self._connect(address), self._clock()
        granted = await self._remote.lock(address, self._name, owner, queues)
        if owner == self._client_id:
            for queue in granted:
                self.lease(queue).granted(channel, asked_at)
        return granted

    async def _release(self, queues: list[MessageQueue], owner: str) -> None:
        try:
            await self._remote.unlock(self._address_of(queues[0].broker), self._name, owner, queues)
        except RemoteError as error:
            self.failures += 1
            log.warning("hand-over locks of %s on %s end by themselves in 60 s: %s", owner, queues[0].broker, error)
