"""How a Python process that Spark gives tasks to runs ours: what it does once before the first, and its event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar

from evenq.client.read.memory import keep_freed

__all__ = ["Run", "event_loop", "settle"]

T = TypeVar("T")


@cache
def settle() -> None:
    """Make this process ready for many short tasks.

    Spark looks for garbage after every task, in all that Spark, Arrow and we have imported: 30 ms, as long as it takes
    to read 30,000 rows. What is here by now is here to stay, and is no longer looked at.
    """
    gc.freeze()
    keep_freed()


class Run(Protocol):
    """Lets the event loop run until something is done, and gives its result."""

    def __call__(self, wanted: Coroutine[Any, Any, T], /) -> T: ...


@contextmanager
def event_loop() -> Iterator[Run]:
    """An event loop that has its turn for every few thousand rows, between which Spark has its own.

    It leaves Ctrl-C alone, which Spark's workers do not listen to: ``asyncio.Runner.run`` takes it over for each turn,
    and that costs more than many a turn.
    """
    with asyncio.Runner() as runner:
        yield runner.get_loop().run_until_complete
