"""Calling what users give us: a coroutine function in the loop, a plain function in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

from evenq.client.dispatch import is_async

__all__ = ["call"]

P = ParamSpec("P")
T = TypeVar("T")


async def call(function: Callable[P, T | Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``function`` gives, however it is written. One that blocks holds up a thread, not the loop."""
    if is_async(function):
        return await cast("Callable[P, Awaitable[T]]", function)(*args, **kwargs)
    return await asyncio.to_thread(cast("Callable[P, T]", function), *args, **kwargs)
