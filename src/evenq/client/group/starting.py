"""Where consumption of a queue begins: at what the group has stored, else where its settings say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from evenq.client.net.remote import Remote
from evenq.errors import ArgumentError
from evenq.model import Begin, MessageQueue
from evenq.protocol.names import RETRY

__all__ = ["StartingPoint", "milliseconds"]

_NAMES = {"last": Begin.LAST, "first": Begin.FIRST}


def milliseconds(when: datetime, argument: str) -> int:
    """A time as brokers count it; ``argument`` is its name, should it have no time zone."""
    if when.tzinfo is None:
        raise ArgumentError(argument, when, "give a datetime with a time zone, e.g. datetime.now(UTC)")
    return round(when.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a group without a stored offset begins. ``timestamp_ms`` counts with ``Begin.TIMESTAMP``."""

    where: Begin
    timestamp_ms: int = 0

    @classmethod
    def of(cls, begin: str | datetime) -> StartingPoint:
        """Read what users give: ``"last"``, ``"first"``, or a datetime with a time zone."""
        if isinstance(begin, datetime):
            return cls(Begin.TIMESTAMP, milliseconds(begin, "begin"))
        if begin not in _NAMES:
            raise ArgumentError("begin", begin, "give 'last', 'first' or a datetime")
        return cls(_NAMES[begin])

    async def find(self, remote: Remote, address: str, group: str, queue: MessageQueue) -> tuple[int, bool]:
        """The offset to begin at, and whether it is stored: asked of the broker anew each time, for another member
        may have moved it.

        A broker answers 0 for a group that has stored nothing while the queue still has its first message in memory.
        That is taken as stored, as Java's client does: a new queue of a running topic is then read whole. A time that
        was given says the same better, and is not to be overruled.
        """
        if self.where is Begin.TIMESTAMP:
            stored = await remote.stored_offset(address, group, queue, never_guess=True)
        else:
            stored = await remote.stored_offset(address, group, queue)
        if stored is not None and stored >= 0:
            return stored, True
        return await self.unstored(remote, address, queue), False

    async def unstored(self, remote: Remote, address: str, queue: MessageQueue) -> int:
        """The offset to begin at where nothing is stored.

        In a retry queue that is 0, whatever the settings say: all that is in it was delivered to this group and failed.
        """
        if queue.topic.startswith(RETRY):
            return 0
        match self.where:
            case Begin.FIRST:
                return await remote.min_offset(address, queue)
            case Begin.TIMESTAMP:
                return await remote.offset_at(address, queue, self.timestamp_ms)
            case Begin.LAST:
                return await remote.max_offset(address, queue)
