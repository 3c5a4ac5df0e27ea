"""What the group's side knows of a queue that it holds, whatever its messages are kept in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from evenq.client.settings import LEASE_VALID_S
from evenq.model import MessageQueue

__all__ = ["LEASE_VALID_S", "Cached", "Channel", "H", "Held", "Lease"]


class Channel(Protocol):
    """A connection, as far as a lock depends on it."""

    @property
    def closed(self) -> bool: ...


class _State(Enum):
    UNLOCKED = "unlocked"
    LOCKED = "locked"
    LOST = "lost"


class Lease:
    """What a member knows of the broker's lock on a queue that it holds. Messages are handed out, and offsets
    committed, only while the lease counts.

    A broker keeps locks in memory, so a restart frees them. It also counts a member as gone when its connection closes,
    and another member may then unlock in its name. So a lock is certain only as long as the connection lives on which
    it was granted.

    =========== ============================= ============================================================
    state       counts                        changes
    =========== ============================= ============================================================
    ``UNLOCKED`` always: the queue is held    granted: ``LOCKED``; refused: stays, since the queue was taken
                without a lock on purpose     knowing that another name has the lock
    ``LOCKED``  while the connection is open  granted: on the connection of now; refused: ``LOST``
                and for ``LEASE_VALID_S``
    ``LOST``    never: another member has it  none: the queue is released and may be claimed again
    =========== ============================= ============================================================

    ``on_resumed`` is called when the lease counts again after it did not, whoever renewed the lock.
    """

    __slots__ = ("_channel", "_clock", "_state", "granted_at", "on_resumed")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state = _State.UNLOCKED
        self._channel: Channel | None = None
        # when the lock was granted last; 0 where it never was
        self.granted_at = 0.0
        self.on_resumed: Callable[[], None] | None = None

    @property
    def locked(self) -> bool:
        return self._state is _State.LOCKED

    @property
    def lost(self) -> bool:
        return self._state is _State.LOST

    def counts(self) -> bool:
        """Whether nobody else can hold the queue now. May be asked in any thread."""
        if self._state is _State.LOCKED:
            assert self._channel is not None
            return not self._channel.closed and self._clock() - self.granted_at <= LEASE_VALID_S
        return self._state is _State.UNLOCKED

    def counts_on(self, channel: Channel) -> bool:
        """Whether the lock was granted on this connection and has been ours since."""
        return self.locked and self._channel is channel and self.counts()

    def granted(self, channel: Channel, at: float) -> None:
        """The broker granted or renewed the lock on ``channel``, asked at ``at``."""
        if self._state is _State.LOST:
            return
        resumed = self.on_resumed if self.on_resumed is not None and not self.counts() else None
        self._channel, self.granted_at, self._state = channel, at, _State.LOCKED
        if resumed is not None and self.counts():
            resumed()

    def refused(self) -> None:
        """Another name has the lock."""
        if self._state is _State.LOCKED:
            self._state = _State.LOST


@dataclass(frozen=True, slots=True)
class Cached:
    """What is in memory of a queue: so many messages, the first and the last offset, so many bytes."""

    count: int
    first: int
    last: int
    bytes: int


class Held(Protocol):
    """What the group's side must know of a held queue, whatever its messages are kept in.

    ``committed`` is what the broker has confirmed, ``committable`` what it may be told; ``in_hand`` counts what was
    handed out and has not ended. ``pulled_at`` and ``consumed_at`` are when that was last done.
    """

    committed: int
    # incremented by whatever moves the queue to another offset while a commit may be under way
    epoch: int
    # the broker's lock on the queue; unlocked where none is needed
    lease: Lease
    pulled_at: float
    consumed_at: float
    # held while a commit is under way: of two at once the lower might be stored last
    committing: asyncio.Lock

    @property
    def queue(self) -> MessageQueue: ...
    @property
    def committable(self) -> int: ...
    @property
    def in_hand(self) -> int: ...
    @property
    def cached(self) -> Cached: ...
    def drop(self) -> None: ...
    async def drained(self, timeout: float) -> bool: ...


H = TypeVar("H", bound=Held)
