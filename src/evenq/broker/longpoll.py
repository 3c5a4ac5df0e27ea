"""Pulls that found nothing and wait for a message: woken by arrival, or by the time they may wait.

Nothing here answers a pull. A woken one is tried again by whoever parked it, who may let it wait on.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from evenq.broker.limits import Limits
from evenq.broker.server import Connection

__all__ = ["WaitingPull", "WaitingPulls"]

_CROWDED = 1024
# So many woken pulls are tried again in one round of the loop.
_AT_ONCE = 64


@dataclass(slots=True, eq=False)
class WaitingPull:
    """A pull of ``connection`` for the queue, until ``deadline`` (by the clock of the table).

    ``retry`` tries it again; its argument is whether the time is up.
    """

    connection: Connection
    topic: str
    queue_id: int
    deadline: float
    retry: Callable[[bool], None]


class WaitingPulls:
    """The waiting pulls of a broker, by queue and by deadline.

    One call of ``schedule(when, callback)`` is outstanding at any time, for the earliest deadline: a pull that waits
    costs an entry in a table, not a task.
    """

    def __init__(
        self,
        schedule: Callable[[float, Callable[[], None]], object],
        now: Callable[[], float],
        limits: Limits | None = None,
    ) -> None:
        self._schedule = schedule
        self._now = now
        self._limits = limits or Limits()
        self._by_connection: dict[Connection, dict[WaitingPull, None]] = {}
        self._count = 0
        # those that messages came for and that are not tried again yet
        self._woken: deque[WaitingPull] = deque()
        self._by_queue: dict[tuple[str, int], dict[WaitingPull, None]] = {}
        self._deadlines: list[tuple[float, int, WaitingPull]] = []
        self._order = itertools.count()
        self._crowded = _CROWDED
        # when the outstanding timer goes off
        self._timer = float("inf")

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def has_room(self, connection: Connection) -> bool:
        """Whether one more pull of the connection may wait."""
        if connection.ended:
            return False
        own = self._by_connection.get(connection, ())
        return self._count < self._limits.max_parked_pulls_total and len(own) < self._limits.max_parked_pulls

    def park(self, pull: WaitingPull) -> None:
        self._count += 1
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        pull.connection.wait()
        self._by_queue.setdefault((pull.topic, pull.queue_id), {})[pull] = None
        heapq.heappush(self._deadlines, (pull.deadline, next(self._order), pull))
        if len(self._deadlines) > self._crowded:
            self._sweep()
        self._arm()

    def _sweep(self) -> None:
        """Drop deadlines of pulls that were woken long ago: they must not pile up where messages come fast."""
        self._deadlines = [entry for entry in self._deadlines if self._waits(entry[2])]
        heapq.heapify(self._deadlines)
        self._crowded = max(_CROWDED, 2 * len(self._deadlines))

    def _waits(self, pull: WaitingPull) -> bool:
        return pull in self._by_queue.get((pull.topic, pull.queue_id), ())

    def arrived(self, queues: Iterable[tuple[str, int]]) -> None:
        """Messages came to these queues: wake all that wait there. Where they are many, others have their turn
        between."""
        idle = not self._woken
        for queue in queues:
            self._woken.extend(self._by_queue.pop(queue, ()))
        if idle:
            self._try_again()

    def _try_again(self) -> None:
        end = self._now() + self._limits.loop_budget_s
        try:
            for _ in range(min(_AT_ONCE, len(self._woken))):
                pull = self._woken.popleft()
                # one whose connection is gone was forgotten meanwhile
                if self._release(pull):
                    pull.retry(False)
                if self._now() > end:
                    break
        finally:
            if self._woken:
                self._schedule(self._now(), self._try_again)

    def _release(self, pull: WaitingPull) -> bool:
        """The pull waits no more; whether it did."""
        own = self._by_connection.get(pull.connection, {})
        if pull not in own:
            return False
        del own[pull]
        if not own:
            del self._by_connection[pull.connection]
        self._count -= 1
        pull.connection.done()
        return True

    def forget(self, connection: Connection) -> None:
        """Drop the pulls of a connection that is gone."""
        for pull in list(self._by_connection.get(connection, ())):
            if self._waits(pull):
                self._remove(pull)
            else:
                self._release(pull)

    def _remove(self, pull: WaitingPull) -> None:
        queue = (pull.topic, pull.queue_id)
        del self._by_queue[queue][pull]
        if not self._by_queue[queue]:
            del self._by_queue[queue]
        self._release(pull)

    def _arm(self) -> None:
        if self._deadlines and self._deadlines[0][0] < self._timer:
            self._timer = self._deadlines[0][0]
            self._schedule(self._timer, self._expire)

    def _expire(self) -> None:
        now = self._now()
        self._timer = float("inf")
        try:
            while self._deadlines and self._deadlines[0][0] <= now:
                _, _, pull = heapq.heappop(self._deadlines)
                # a pull that was woken meanwhile may still stand in the heap
                if self._waits(pull):
                    self._remove(pull)
                    pull.retry(True)
                if self._now() > now + self._limits.loop_budget_s:
                    break
        finally:
            self._arm()
