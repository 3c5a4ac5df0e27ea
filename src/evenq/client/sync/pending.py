"""A future for other threads that costs next to nothing where nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Pending"]

T = TypeVar("T")

_RUNNING, _FINISHED = "RUNNING", "FINISHED"

# The lock of futures that were waited for by nobody.
_SHARED = threading.Condition()


class Pending(Future[T]):
    """A :class:`concurrent.futures.Future` of something that has begun and cannot be taken back.

    Its lock is made by the first who needs one: of a thousand messages on their way, hardly one is waited for. Where
    nobody has come by the time the promise is kept, it gets a lock that all such futures share.

    ``then`` is called, in the thread that keeps the promise, before anybody can see that it is kept.
    """

    def __init__(self, then: Callable[[], object] | None = None) -> None:
        self._state = _RUNNING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._then = then

    def __getattr__(self, name: str) -> Any:
        if name != "_condition":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.__dict__.setdefault(name, threading.Condition())

    def done(self) -> bool:
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> T:
        if self._state == _FINISHED and self._exception is None:
            outcome: T = self._result
            return outcome
        return super().result(timeout)

    def set_result(self, result: T) -> None:
        self._result = result
        self._keep()

    def set_exception(self, exception: BaseException | None) -> None:
        self._exception = exception
        self._keep()

    def _keep(self) -> None:
        if self._then is not None:
            self._then()
        # First this, then a look for a lock. Whoever made one before the look is told below; whoever comes after it
        # gets the shared one, and sees that the promise is kept.
        self._state = _FINISHED
        lock = self.__dict__.setdefault("_condition", _SHARED)
        if lock is _SHARED:
            return
        with lock:
            for waiter in self._waiters:
                (waiter.add_result if self._exception is None else waiter.add_exception)(self)
            lock.notify_all()
        self._invoke_callbacks()
