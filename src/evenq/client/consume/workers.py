"""Threads for plain functions: as many as are busy at a time, and their results come back to the loop together."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Caller", "Workers"]

log = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Caller(Protocol[R_contra]):
    """Who waits for a call in a thread. One of the two is called in the loop, once; neither may raise."""

    def returned(self, result: R_contra) -> None: ...
    def raised(self, error: Exception) -> None: ...


class _FutureCaller(Generic[R]):
    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[R]) -> None:
        self.future = future

    def returned(self, result: R) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def raised(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Workers(Generic[A, R]):
    """Calls ``function`` in threads. For use in one event loop.

    A thread is made whenever all others are busy, and they are left behind at the end: a function that never returns
    takes a thread, but keeps neither other calls from being made nor the process from ending. Results that are there
    at the same time wake the loop once.
    """

    def __init__(self, function: Callable[[A], R], name: str) -> None:
        self._function = function
        self._name = name
        # None ends a thread
        self._jobs: SimpleQueue[tuple[Caller[R], A] | None] = SimpleQueue()
        self._ended: deque[tuple[Caller[R], Any, Exception | None]] = deque()
        # whether the loop knows that something has ended
        self._told = False
        # these are only touched in the loop
        self._busy = 0
        self._threads = 0

    def run(self, argument: A) -> asyncio.Future[R]:
        """Begin a call; gives the future of its result."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.submit(argument, _FutureCaller(future))
        return future

    def submit(self, argument: A, caller: Caller[R]) -> None:
        """Begin a call, and let ``caller`` hear what comes of it: the leanest form, without a future."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._work, args=(loop,), name=name, daemon=True).start()
        self._jobs.put((caller, argument))
        if self._busy == 1:
            # Nothing else runs, so this call is waited for. Its thread wakes up to find the interpreter taken: let go
            # of it for a moment, and the call begins now instead of at the loop's next system call.
            time.sleep(0)

    def close(self) -> None:
        """Let the threads go, each when it has nothing to do any more."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            self._ended.append((job[0], *self._outcome(job[1])))
            # kept until the next one comes, it would keep its messages in memory
            del job
            if not self._told:
                self._told = True
                try:
                    loop.call_soon_threadsafe(self._tell)
                except RuntimeError:
                    # the loop is closed: nobody waits any more
                    return

    def _outcome(self, argument: A) -> tuple[Any, Exception | None]:
        try:
            return self._function(argument), None
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            # in a loop these would mean something else than that the call has failed
            failure = RuntimeError(f"{type(error).__name__} in thread {threading.current_thread().name}")
            failure.__cause__ = error
            return None, failure
        except Exception as error:  # noqa: BLE001 - it is for whoever waits
            return None, error

    def _tell(self) -> None:
        # first this: what ends from now on tells the loop again
        self._told = False
        for _ in range(len(self._ended)):
            caller, result, error = self._ended.popleft()
            self._busy -= 1
            try:
                if error is None:
                    caller.returned(result)
                else:
                    caller.raised(error)
            except Exception:
                # the results behind this one must still be told
                log.exception("a result of %s could not be passed on", self._name)
