"""Locks that are to be given back to brokers that did not answer when they were to be given back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from evenq.errors import RemoteError
from evenq.model import MessageQueue

__all__ = ["OwedReturns"]

# The owner of a lock, the name of the lock and the queue.
_Lock = tuple[str, str, MessageQueue]


class OwedReturns:
    """Gives locks back until the broker has taken them or they have ended by themselves.

    A lock that stays behind keeps its queue from everybody for a minute. A lock that is wanted again is no longer owed:
    an unlock must not overtake the request that locks anew, so one waits for the other.
    """

    def __init__(
        self,
        unlock: Callable[[list[MessageQueue], str, str], Awaitable[None]],
        life_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unlock = unlock
        self._life_s = life_s
        self._clock = clock
        # locks that may still be there, and when they end by themselves
        self._owed: dict[_Lock, float] = {}
        # locks that are being taken, and that are being given back
        self._trying: Counter[_Lock] = Counter()
        self._returning: set[_Lock] = set()
        self._returned = asyncio.Event()

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, queues: Iterable[MessageQueue], owner: str, lock_name: str) -> None:
        """These locks could not be given back."""
        until = self._clock() + self._life_s
        self._owed |= {(owner, lock_name, queue): until for queue in queues}

    def keep(self, queues: Iterable[MessageQueue], owner: str, lock_name: str) -> None:
        """These locks were granted anew."""
        for queue in queues:
            self._owed.pop((owner, lock_name, queue), None)

    def keep_all_of(self, owners: Collection[str]) -> None:
        """These members live, and give their locks back themselves."""
        for lock in [lock for lock in self._owed if lock[0] in owners]:
            del self._owed[lock]

    @asynccontextmanager
    async def trying(self, queues: Iterable[MessageQueue], owner: str, lock_name: str) -> AsyncIterator[None]:
        """While the locks are being taken, none of them is given back."""
        locks = [(owner, lock_name, queue) for queue in queues]
        while not self._returning.isdisjoint(locks):
            await self._returned.wait()
        self._trying.update(locks)
        try:
            yield
        finally:
            self._trying.subtract(locks)
            self._trying = +self._trying

    async def give_back(self) -> None:
        """Try once more for each of them. To be called often."""
        now = self._clock()
        self._owed = {lock: until for lock, until in self._owed.items() if until > now}
        parts: defaultdict[tuple[str, str, str], list[_Lock]] = defaultdict(list)
        for lock in self._owed:
            owner, lock_name, queue = lock
            if lock not in self._trying and lock not in self._returning:
                parts[queue.broker, owner, lock_name].append(lock)
        await asyncio.gather(*map(self._give_back, parts.values()))

    async def _give_back(self, locks: list[_Lock]) -> None:
        """Those of one broker, owner and name."""
        owner, lock_name, _ = locks[0]
        self._returning.update(locks)
        try:
            await self._unlock([queue for _, _, queue in locks], owner, lock_name)
        except RemoteError:
            # it is still away
            return
        finally:
            self._returning.difference_update(locks)
            self._returned.set()
            self._returned = asyncio.Event()
        for lock in locks:
            self._owed.pop(lock, None)
