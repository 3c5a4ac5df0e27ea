"""Flow control beyond a single queue: limits that queues share, and the first seconds of a queue that was gained."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Protocol

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
    """How many calls of the handler may have messages of queues that were gained a moment ago.

    After a rebalance queues may have a long backlog. Handed out at once it would hit the handler, and whatever stands
    behind it, with all calls at a time. So the queues that were gained together begin with one call, and a timer allows
    one more in equal steps (:meth:`widen`). Only time counts: a quick handler may pass the load on to something slow.

    A queue that may have no call now waits here: ``again`` is called for it when another call may begin.

    >>> ramp = RampUp(3, again=print)
    >>> [ramp.begin(queue) for queue in "aba"]
    [True, False, False]
    >>> ramp.end()
    b
    >>> ramp.begin("b"), ramp.widen()
    a
    (True, None)
    >>> ramp.begin("a"), ramp.begin("a"), ramp.over
    (True, False, False)
    >>> ramp.widen(), ramp.over
    a
    (None, True)
    """

    __slots__ = ("_again", "_calls", "_most", "_running", "_waiting")

    def __init__(self, most: int, again: Callable[[Any], None]) -> None:
        self._most = most
        self._again = again
        self._calls = 1
        self._running = 0
        # queues that got no call, the first one first
        self._waiting: dict[Any, None] = {}

    @property
    def over(self) -> bool:
        """Whether the queues may have all calls."""
        return self._calls >= self._most

    def begin(self, queue: object) -> bool:
        """Count a call that is about to begin with messages of a queue; False if it may not."""
        if self._running < self._calls or self.over:
            self._running += 1
            return True
        self._waiting[queue] = None
        return False

    def end(self) -> None:
        """A call has ended, or was not made."""
        self._running -= 1
        self._let_wait_no_more()

    def widen(self) -> None:
        """Allow one more call."""
        self._calls += 1
        self._let_wait_no_more()

    def _let_wait_no_more(self) -> None:
        free = len(self._waiting) if self.over else self._calls - self._running
        for queue in list(self._waiting)[:free]:
            del self._waiting[queue]
            self._again(queue)
