"""What the group's side knows of a queue that it holds, whatever its messages are kept in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, TypeVar

from evenq.model import MessageQueue

__all__ = ["LOCK_LOST", "Cached", "H", "Held"]

# What stands for the time of the last lock where another member has it now.
LOCK_LOST = float("-inf")


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
    handed out and has not ended. ``locked_at``, ``pulled_at`` and ``consumed_at`` are when that was last done.
    """

    committed: int
    # incremented by whatever moves the queue to another offset while a commit may be under way
    epoch: int
    locked_at: float
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
