"""Calling what users give us: a coroutine function in the loop, a plain function in a thread, a hook at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Generic, ParamSpec, TypeVar, cast

from evenq.errors import ArgumentError
from evenq.supervision import FailureLog, callable_name

__all__ = ["Hooks", "call", "is_async"]

P = ParamSpec("P")
T = TypeVar("T")


def is_async(function: object) -> bool:
    """Whether a call of it gives something to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def call(function: Callable[P, T | Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``function`` gives, however it is written. One that blocks holds up a thread, not the loop."""
    if is_async(function):
        return await cast("Callable[P, Awaitable[T]]", function)(*args, **kwargs)
    return await asyncio.to_thread(cast("Callable[P, T]", function), *args, **kwargs)


class Hooks(Generic[T]):
    """Functions that hear of every event of one kind, in the event loop and before whoever waits goes on.

    What a hook raises is logged, once and then counted: it changes nothing about the event that it heard of.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._hooks: list[tuple[Callable[[T], None], FailureLog]] = []

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: Callable[[T], None]) -> None:
        if not callable(hook) or is_async(hook):
            raise ArgumentError(self._name, hook, "give a plain function: it runs in the event loop and must not wait")
        self._hooks.append((hook, FailureLog(f"{self._name} hook {callable_name(hook)}")))

    def call(self, event: T) -> None:
        for hook, failures in self._hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - a hook may raise anything
                failures.record(error)
