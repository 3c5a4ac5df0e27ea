"""Flow control beyond a single queue: limits that queues share, and the first seconds of a queue that was gained."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Protocol

from evenq.client.settings import FlowControl
from evenq.model import MessageQueue

__all__ = ["RampUp", "SharedLimits"]


class _Limited(Protocol):
    @property
    def queue(self) -> MessageQueue: ...
    def limit(self, limits: FlowControl) -> None: ...


class SharedLimits:
    """Divides the limits of a consumer among the queues that it holds, whenever these change."""

    def __init__(self, limits: FlowControl, held: Callable[[], Collection[_Limited]]) -> None:
        self._limits = limits
        self._held = held
        self._due = False

    def divide_soon(self) -> None:
        """Divide them once for all queues that come or go in this turn of the loop."""
        if self._limits.is_shared and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.divide)

    def divide(self) -> None:
        self._due = False
        held = self._held()
        of_topic = Counter(each.queue.topic for each in held)
        limits = {topic: self._limits.for_queue(of_topic=count, of_all=len(held)) for topic, count in of_topic.items()}
        for each in held:
            each.limit(limits[each.queue.topic])


class RampUp:
    """How many calls of the handler may have messages of a queue that was gained a moment ago.

    After a rebalance a queue may have a long backlog. Handed out at once it would hit the handler, and whatever stands
    behind it, with all calls at a time. So it begins with one call. Each completed round of calls allows one more, so a
    handler that keeps up has all calls soon; :meth:`widen`, which a timer calls, allows one more for a slow one.

    >>> ramp = RampUp(3)
    >>> ramp.allows(0), ramp.allows(1)
    (True, False)
    >>> ramp.completed()
    >>> ramp.allows(1), ramp.allows(2), ramp.over
    (True, False, False)
    >>> ramp.widen(); ramp.over
    True
    """

    __slots__ = ("_calls", "_completed", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls = 1
        # calls that were completed since the last one was allowed
        self._completed = 0

    @property
    def over(self) -> bool:
        """Whether the queue may have all calls."""
        return self._calls >= self._most

    def allows(self, running: int) -> bool:
        """Whether one more call may begin beside those that run."""
        return running < self._calls or self.over

    def completed(self) -> None:
        """A call has ended."""
        self._completed += 1
        if self._completed >= self._calls:
            self.widen()

    def widen(self) -> None:
        """Allow one more call."""
        self._calls += 1
        self._completed = 0
