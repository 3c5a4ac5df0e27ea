"""How the sync surface is made of the async one: one event loop in one thread, and methods that wait for it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import inspect
import os
import threading
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from evenq.balance import act_for, on_behalf_of
from evenq.client.sync.pending import Pending
from evenq.errors import StateError

__all__ = ["Facade", "blocking", "mirrors", "plain"]

P = ParamSpec("P")
T = TypeVar("T")


# Seconds that the end of the process waits for clients that were not closed.
EXIT_PATIENCE = 2.0

_STOPPED = "this process is ending, and evenq's event loop has stopped: use and close clients before that"


# Who calls, what they wait for, and what is to be called.
_Call = tuple[threading.Thread, Pending[Any], Callable[..., None], tuple[object, ...]]


class _LoopThread:
    """An event loop that runs in a daemon thread for as long as the process lives."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        # calls from other threads, and whether the loop has been told that there are some
        self._calls: deque[_Call] = deque()
        self._told = False
        # whether the loop has stopped, or is about to: nothing that is begun now would ever end
        self._stopped = False
        # what threads wait for now: results, and the coroutines that they come from
        self._awaited: dict[concurrent.futures.Future[Any], Coroutine[Any, Any, Any]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="evenq", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def soon(self, promise: Pending[Any], method: Callable[..., None], args: tuple[object, ...]) -> None:
        """For any thread: let ``method`` run in the loop, in order. Calls close together cost one wake-up."""
        self._calls.append((threading.current_thread(), promise, method, args))
        if not self._told and not self._stopped:
            self._told = True
            with suppress(RuntimeError):
                # the loop may close at this moment; then the call is refused below
                self.loop.call_soon_threadsafe(self._make_calls)
        if self._stopped:
            self._refuse_calls()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """For any thread: run a coroutine in the loop."""
        if self._stopped:
            work.close()
            raise StateError(_STOPPED)
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            # the loop was closed at this moment
            work.close()
            raise StateError(_STOPPED) from None
        self._awaited[future] = work
        future.add_done_callback(lambda done: self._awaited.pop(done, None))
        if self._closed:
            self._refuse(future, work)
        return future

    def _refuse(self, future: concurrent.futures.Future[Any], work: Coroutine[Any, Any, Any]) -> None:
        """What the loop has never begun will never end."""
        with suppress(concurrent.futures.InvalidStateError):
            future.set_exception(StateError(_STOPPED))
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()

    def _refuse_calls(self) -> None:
        """Let whoever waits for a call hear that it will not be made. May run in two threads at a time."""
        with suppress(IndexError):
            while True:
                self._calls.popleft()[1].set_exception(StateError(_STOPPED))

    def _make_calls(self) -> None:
        if self._stopped:
            self._refuse_calls()
            return
        # first this: a call that is added from now on tells the loop again
        self._told = False
        caller = None
        for _ in range(len(self._calls)):
            thread, promise, method, args = self._calls.popleft()
            if thread is not caller:
                caller = thread
                act_for(thread)
            try:
                method(promise, *args)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                promise.set_exception(error)

    def _run(self) -> None:
        self.loop.run_forever()
        self._stopped = True
        self._refuse_calls()
        self.loop.run_until_complete(_end_all())
        self.loop.close()
        # first this: a call that is added from now on is refused by the thread that adds it
        self._closed = True
        for future, work in list(self._awaited.items()):
            self._refuse(future, work)

    def _stop(self) -> None:
        if self._pid == os.getpid() and not self._closed:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(EXIT_PATIENCE)


async def _end_all() -> None:
    """What nobody closed ends here, quietly."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


_lock = threading.Lock()
_thread: _LoopThread | None = None
_pid = os.getpid()


def _forked() -> None:
    """A fork does not inherit the thread of the loop, so it gets one of its own."""
    global _lock, _thread, _pid
    _lock, _thread, _pid = threading.Lock(), None, os.getpid()


os.register_at_fork(after_in_child=_forked)


def _loop_thread() -> _LoopThread:
    """The loop of this process."""
    return _thread or _begin_thread()


def _begin_thread() -> _LoopThread:
    global _thread
    with _lock:
        if _thread is None:
            _thread = _LoopThread()
        return _thread


class _Inner(Protocol):
    async def close(self) -> None: ...


I = TypeVar("I", bound=_Inner)  # noqa: E741 - the inner object


class Facade(Generic[I]):
    """A sync object over an async one. For any thread; not inside a running event loop, not after a fork."""

    def __init__(self, inner: I) -> None:
        self._inner = inner
        self._pid = _pid

    def close(self) -> None:
        """End properly and free everything. Safe to call twice."""
        self._wait(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            self._check()
        except StateError:
            work.close()
            raise
        # round robin counts by thread: the task that sends must know which thread it sends for
        with on_behalf_of(threading.current_thread()):
            return _loop_thread().submit(work)

    def _begin(self, promise: Pending[T], method: Callable[..., None], *args: object) -> Pending[T]:
        """Call a method that keeps a promise, where the async object lives: no task is made."""
        _loop_thread().soon(promise, method, args)
        return promise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._result(self._submit(work))

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except BaseException:
            # an interrupt ends the waiting; the work must not go on behind the caller's back
            future.cancel()
            raise

    def _in_loop(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain method where the async object lives: nothing of it may be touched from other threads."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._wait(call())

    def _check(self) -> None:
        kind = type(self).__name__
        if self._pid != _pid:
            raise StateError(
                f"this {kind} was made in process {self._pid} and cannot be used in its fork {_pid}: "
                "make a new one here"
            )
        if _get_running_loop() is not None:
            raise StateError(f"evenq.{kind} would block the running event loop: use evenq.aio.{kind} here")


def blocking(method: Callable[Concatenate[I, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The sync form of an async method: same arguments, waits for the result."""

    @functools.wraps(method)
    def call(self: Facade[I], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._inner, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], T]", call)


def plain(method: Callable[Concatenate[I, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The sync form of a method that is not async."""

    @functools.wraps(method)
    def call(self: Facade[I], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._in_loop(functools.partial(method, self._inner), *args, **kwargs)

    return cast("Callable[Concatenate[Any, P], T]", call)


def mirrors(original: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Let an ``__init__`` that only passes its arguments on have the signature of what it passes them to."""

    def decorate(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        return cast("Callable[Concatenate[Any, P], None]", functools.wraps(original.__init__)(init))

    return decorate
