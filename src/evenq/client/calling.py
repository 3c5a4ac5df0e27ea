"""Calling what users give us: a coroutine function in the loop, a plain function in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

__all__ = ["call", "is_async"]

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
