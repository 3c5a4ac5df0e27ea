"""Handing messages to listeners: a number of lanes that take turns over the queues with something to do."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

from evenq.client.holding import Holding
from evenq.errors import ArgumentError
from evenq.model import MessageView

__all__ = ["Dispatcher", "Handler", "Listener", "Retry", "is_async", "listener"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retry:
    """What a handler returns to see the batch again later.

    ``delay_level`` is RocketMQ's (1 is 1 s … 18 is 2 h); 0 lets the broker choose by the number of tries so far.
    """

    delay_level: int = 0

    def __post_init__(self) -> None:
        if not -1 <= self.delay_level <= 18:
            raise ArgumentError(
                "delay_level", self.delay_level, "give 1 to 18, 0 for the broker's choice, -1 for never"
            )


Handler = Callable[[list[MessageView]], "Retry | None"] | Callable[[list[MessageView]], Awaitable["Retry | None"]]
Listener = Callable[[list[MessageView]], Awaitable["Retry | None"]]


def is_async(function: object) -> bool:
    """Whether a call of it gives something to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def listener(handler: Handler, pool: ThreadPoolExecutor) -> Listener:
    """The handler as a coroutine function: a plain function runs in ``pool``, a coroutine function in the loop."""
    if not callable(handler):
        raise ArgumentError("handler", handler, "give a function that takes a list of messages")
    if is_async(handler):
        return cast("Listener", handler)
    plain = cast("Callable[[list[MessageView]], Retry | None]", handler)

    async def run(batch: list[MessageView]) -> Retry | None:
        return await asyncio.get_running_loop().run_in_executor(pool, plain, batch)

    return run


class Dispatcher:
    """``lanes`` batches run at a time. Queues with messages take turns, so that no queue starves another."""

    def __init__(
        self, deliver: Callable[[Holding, list[MessageView]], Awaitable[None]], lanes: int, batch: int
    ) -> None:
        self._deliver = deliver
        self._batch = batch
        self._lanes = lanes
        self._ready: asyncio.Queue[Holding] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._lane()) for _ in range(self._lanes)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def announce(self, holding: Holding) -> None:
        """Messages wait in ``holding``. It stands in line at most once, whatever it has."""
        if not holding.announced and holding.waiting:
            holding.announced = True
            self._ready.put_nowait(holding)

    async def _lane(self) -> None:
        while True:
            holding = await self._ready.get()
            holding.announced = False
            batch = holding.take(self._batch)
            if not batch:
                continue
            self.announce(holding)
            try:
                await self._deliver(holding, batch)
            except Exception:
                # a lane must outlive anything that delivering does
                log.exception("delivering %d messages of %s failed", len(batch), holding.queue)
                holding.release()
