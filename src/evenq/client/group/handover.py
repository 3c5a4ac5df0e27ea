"""Hand-over locks: a queue is read by its new holder only after the old one has let it go.

The lock is the broker's ``LOCK_BATCH_MQ``, taken under the name ``HANDOVER-<group>``, never under the group's own
name: the real broker sends every retry of a group straight to the dead letter queue while any lock of that group's
own name is held.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from evenq.client.net.remote import Remote, by_broker
from evenq.errors import RemoteError
from evenq.model import MessageQueue

__all__ = ["ClaimLocks", "HandoverLocks", "Locks", "NoLocks"]

log = logging.getLogger(__name__)

ASKING = "ASKING"


class Locks(Protocol):
    """Locks on queues. ``owner`` is this member where none is named."""

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]: ...
    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]: ...
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

    async def free(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        return set(queues)

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Nothing was taken."""


class HandoverLocks:
    """The locks of one member of one group. ``address_of`` gives the address of a broker's master."""

    def __init__(self, remote: Remote, group: str, client_id: str, address_of: Callable[[str], str]) -> None:
        self._remote = remote
        self._group = group
        self._name = f"HANDOVER-{group}"
        self._client_id = client_id
        self._address_of = address_of
        self.failures = 0

    def in_order(self) -> None:
        """Lock under the group's own name from now on, as Java's orderly members do: they and we exclude each other.

        A group in order has no retries that such a lock could lead astray.
        """
        self._name = self._group

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]:
        """Try for all of them, one request a broker; gives those that are ours now. Renews what is ours already."""
        name = owner or self._client_id
        granted = await asyncio.gather(*(self._take(part, name) for part in by_broker(queues).values()))
        return set().union(*granted)

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Those that are still ours, and those that are not. Of a broker that does not answer nothing is known."""
        kept: set[MessageQueue] = set()
        lost: set[MessageQueue] = set()
        for part in by_broker(queues).values():
            try:
                granted = await self._lock(part, self._client_id)
            except RemoteError as error:
                self.failures += 1
                log.warning("locks on %d queues of %s were not renewed: %s", len(part), part[0].broker, error)
                continue
            kept |= granted
            lost |= set(part) - granted
        return kept, lost

    async def free(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Those that nobody holds. A broker cannot be asked that, so each is locked in a name that all members use
        for asking, and unlocked at once: a lock that is refused to this name does belong to a member."""
        wanted = list(queues)
        granted = await self.take(wanted, owner=ASKING)
        await self.release(granted, owner=ASKING)
        return granted

    async def release(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> None:
        """Give them back: ours, or those of a member that is gone."""
        await asyncio.gather(*(self._release(part, owner or self._client_id) for part in by_broker(queues).values()))

    async def _take(self, queues: list[MessageQueue], owner: str) -> set[MessageQueue]:
        try:
            return await self._lock(queues, owner)
        except RemoteError as error:
            self.failures += 1
            log.warning("no hand-over lock on %d queues of %s: %s", len(queues), queues[0].broker, error)
            return set()

    async def _lock(self, queues: list[MessageQueue], owner: str) -> set[MessageQueue]:
        return await self._remote.lock(self._address_of(queues[0].broker), self._name, owner, queues)

    async def _release(self, queues: list[MessageQueue], owner: str) -> None:
        try:
            await self._remote.unlock(self._address_of(queues[0].broker), self._name, owner, queues)
        except RemoteError as error:
            self.failures += 1
            log.warning("hand-over locks of %s on %s end by themselves in 60 s: %s", owner, queues[0].broker, error)
