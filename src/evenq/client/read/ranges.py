"""What is to be read of a queue. Pure, and quick to import: planners need nothing else of reading."""

from __future__ import annotations

from dataclasses import dataclass

from evenq.model import MessageQueue

__all__ = ["QueueRange"]


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets of one queue from ``start`` up to, not including, ``stop``.

    >>> len(QueueRange(MessageQueue("orders", "broker-a", 0), 10, 15))
    5
    """

    queue: MessageQueue
    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)
