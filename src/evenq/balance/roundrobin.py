"""Round robin: a counter for every thread and every asyncio task, so that each spreads evenly by itself."""

from __future__ import annotations

import threading
from asyncio import Task, current_task
from asyncio.events import _get_running_loop
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from itertools import count
from random import Random
from typing import Any, TypeAlias
from weakref import ref

__all__ = ["Counter", "RoundRobin", "act_for", "on_behalf_of"]

Sender: TypeAlias = Task[Any] | threading.Thread

_sender: ContextVar[threading.Thread | None] = ContextVar("evenq_sender", default=None)


class _OnBehalf:
    """A class, because a generator would cost more than all the rest of a choice."""

    __slots__ = ("_thread", "_token")

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._token: Token[threading.Thread | None]

    def __enter__(self) -> None:
        self._token = _sender.set(self._thread)

    def __exit__(self, *raised: object) -> None:
        _sender.reset(self._token)


def on_behalf_of(thread: threading.Thread) -> AbstractContextManager[None]:
    """Tasks that are started in this block, in whatever event loop, and choices made in it use the counter of
    ``thread``. For a sync surface whose sends are made in a loop elsewhere."""
    return _OnBehalf(thread)


def act_for(thread: threading.Thread) -> None:
    """The same from here on to the end of what the event loop is just calling."""
    _sender.set(thread)


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
        sender: Sender | None = _sender.get()
        if sender is None and (loop := _get_running_loop()) is not None:
            sender = current_task(loop)
        if sender is None:
            return local.counter or local.begin()
        last, counter = local.last
        return counter if last() is sender else local.of(sender)


class _Local(threading.local):
    """What one thread knows: its own counter, and those of the senders that run in it, for as long as they live."""

    def __init__(self, starts: count[int]) -> None:
        # Shared by all threads; taking the next of a count is atomic.
        self.starts = starts
        self.counter: Counter | None = None
        # a WeakKeyDictionary by hand: looking into one costs twice as much
        self.counters: dict[ref[Sender], Counter] = {}
        # whoever sent last, who is mostly who sends next; nobody at first
        self.last: tuple[Callable[[], Sender | None], Counter] = (lambda: None, Counter(0))

    def of(self, sender: Sender) -> Counter:
        counter = self.counters.get(ref(sender)) or self.begin(sender)
        self.last = (ref(sender), counter)
        return counter

    def begin(self, sender: Sender | None = None) -> Counter:
        counter = Counter(next(self.starts))
        if sender is None:
            self.counter = counter
        else:
            self.counters[ref(sender, self.counters.pop)] = counter
        return counter
