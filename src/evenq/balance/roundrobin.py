"""Round robin: a counter for every thread and every asyncio task, so that each spreads evenly by itself."""

from __future__ import annotations

import threading
from asyncio import Task, current_task
from asyncio.events import _get_running_loop
from itertools import count
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Counter", "RoundRobin"]


class Counter:
    """Where one thread or task stands. ``at`` is the next index; modulo n it is a position among n queues.

    Java's counter wraps at 32 bits, which leaves a seam where the counts are uneven and ``abs(-2**31)`` is
    negative. Python's integers have no end, so neither can happen.
    """

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def next(self) -> int:
        at = self.at
        self.at = at + 1
        return at


class RoundRobin:
    """The counters of all threads and tasks that send to one topic.

    The first counter starts at a random value, each further one a step after the one before: many short
    tasks that send one message each are then spread as evenly as one thread that sends many.
    """

    __slots__ = ("_local",)

    def __init__(self, random: Random) -> None:
        self._local = _Local(count(random.randrange(1 << 31)))

    def counter(self) -> Counter:
        """The counter of the running task, or of the calling thread where no task runs."""
        local = self._local
        loop = _get_running_loop()
        task = None if loop is None else current_task(loop)
        if task is None:
            return local.counter or local.begin()
        return local.tasks.get(task) or local.begin(task)


class _Local(threading.local):
    """What one thread knows: its own counter, and those of the tasks that run in it, for as long as they live."""

    def __init__(self, starts: count[int]) -> None:
        # Shared by all threads; taking the next of a count is atomic.
        self.starts = starts
        self.counter: Counter | None = None
        self.tasks: WeakKeyDictionary[Task[Any], Counter] = WeakKeyDictionary()

    def begin(self, task: Task[Any] | None = None) -> Counter:
        counter = Counter(next(self.starts))
        if task is None:
            self.counter = counter
        else:
            self.tasks[task] = counter
        return counter
