"""Locks on queues: one member of a group at a time, for a minute at a time.

Ordered consumption rests on them. A name here need not be a group that exists: members agree on a name of their own
where they want locks that the broker draws no other conclusions from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from evenq.model import MessageQueue

__all__ = ["LOCK_SECONDS", "QueueLocks"]

LOCK_SECONDS = 60.0


@dataclass(slots=True)
class _Lock:
    owner: str
    until: float


class QueueLocks:
    """Who has which queue, by group.

    >>> now = [0.0]
    >>> locks = QueueLocks(clock=lambda: now[0])
    >>> queue = MessageQueue("orders", "broker-a", 0)
    >>> locks.lock("billing", "c1", [queue]) == [queue], locks.lock("billing", "c2", [queue])
    (True, [])
    >>> now[0] = 60.1
    >>> locks.lock("billing", "c2", [queue]) == [queue]
    True
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, owner: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Take or renew what is free, expired or the owner's already; the queues that are the owner's now."""
        now = self._clock()
        held = self._groups.setdefault(group, {})
        taken = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None or lock.owner == owner or lock.until < now:
                held[queue] = _Lock(owner, now + LOCK_SECONDS)
                taken.append(queue)
        return taken

    def unlock(self, group: str, owner: str, queues: Iterable[MessageQueue]) -> None:
        """Let go of what the owner has among ``queues``."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.owner == owner:
                del held[queue]

    def holders(self, group: str) -> dict[MessageQueue, str]:
        """Who holds which queue now, for whoever looks on."""
        now = self._clock()
        return {queue: lock.owner for queue, lock in self._groups.get(group, {}).items() if lock.until >= now}

    def is_locked(self, group: str) -> bool:
        """Whether anybody holds any queue under this name."""
        now = self._clock()
        return any(lock.until >= now for lock in self._groups.get(group, {}).values())

    def expire(self) -> None:
        """Forget locks that ran out."""
        now = self._clock()
        for group, held in list(self._groups.items()):
            for queue in [queue for queue, lock in held.items() if lock.until < now]:
                del held[queue]
            if not held:
                del self._groups[group]
