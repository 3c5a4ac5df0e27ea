"""Handing messages to a handler: a number of lanes that take turns over the queues with something to do."""

from __future__ import annotations

import asyncio
import inspect
import logging
import reprlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from evenq.client.consume.holding import Holding
from evenq.client.settings import is_whole
from evenq.errors import ArgumentError
from evenq.protocol.view import MessageView
from evenq.supervision import Supervisor

__all__ = ["Delivery", "Dispatcher", "Handler", "Outcome", "Retry", "checked_outcome", "failures"]

log = logging.getLogger(__name__)

# Seconds after which a queue whose messages could not be taken stands in line again.
FAILED_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Retry:
    """What a handler returns to see the batch, or one message of it, again later.

    ``delay_level`` is RocketMQ's (1 is 1 s … 18 is 2 h); 0 lets the broker choose by the number of tries so far, -1
    means never: the message becomes a dead letter.
    """

    delay_level: int = 0

    def __post_init__(self) -> None:
        if not is_whole(self.delay_level) or not -1 <= self.delay_level <= 18:
            raise ArgumentError(
                "delay_level", self.delay_level, "give 1 to 18, 0 for the broker's choice, -1 for never"
            )


# None for all's well, one Retry for all, or a list with one of either for each message
Outcome = Retry | None | Sequence[Retry | None]
Handler = Callable[[list[MessageView]], Outcome] | Callable[[list[MessageView]], Awaitable[Outcome]]


class _Shortened(str):
    """The beginning of a value's repr: what a handler returns by mistake may be large."""

    __slots__ = ()
    __repr__ = str.__str__


_shortener = reprlib.Repr()
_shortener.maxother = 120


def checked_outcome(handler: str, result: object, count: int) -> Outcome:
    """What the handler of that name returned for ``count`` messages, if it may return that; else ArgumentError.

    Nothing is guessed: neither ``True`` nor a list that is too short says which messages are consumed.

    >>> checked_outcome("handle", [None, Retry(1)], 2)
    [None, Retry(delay_level=1)]
    >>> checked_outcome("handle", [None, None], 2) is None
    True
    >>> checked_outcome("handle", True, 1)
    Traceback (most recent call last):
    ...
    evenq.errors.ArgumentError: result of handler handle=True: return None if all is consumed, evenq.Retry() to see \
everything again, or a list with one of either for each message (1 in this call)
    """
    if result is None or isinstance(result, Retry):
        return result
    if isinstance(result, Sequence) and len(result) == count:
        if all(one is None for one in result):
            return None
        if all(one is None or isinstance(one, Retry) for one in result):
            return result
    if inspect.iscoroutine(result):
        # it would complain that nobody awaits it
        result.close()
    raise ArgumentError(
        f"result of handler {handler}",
        _Shortened(_shortener.repr(result)),
        "return None if all is consumed, evenq.Retry() to see everything again, or a list with one of either for each "
        f"message ({count} in this call)",
    )


def failures(batch: Sequence[MessageView], outcome: Outcome) -> Iterator[tuple[MessageView, Retry]]:
    """The messages that are to be seen again."""
    each = [outcome] * len(batch) if isinstance(outcome, Retry) else outcome or [None] * len(batch)
    return ((message, one) for message, one in zip(batch, each, strict=True) if one is not None)


class Delivery(Protocol):
    """What becomes of the messages of a batch."""

    in_order: bool

    def ready(self, holding: Holding) -> float:
        """0 where messages of the queue may be delivered now, else in how many seconds to ask again."""
        ...

    async def deliver(self, holding: Holding, batch: list[MessageView]) -> float:
        """Deliver; gives for how many seconds the queue pauses after that."""
        ...


class Dispatcher:
    """``lanes`` batches run at a time. Queues with messages take turns, so that no queue starves another.

    In order, a queue is in one lane at a time.
    """

    def __init__(self, delivery: Delivery, lanes: int, batch: int) -> None:
        self._delivery = delivery
        self._batch = batch
        self._lanes = lanes
        self._ready: asyncio.Queue[Holding] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(Supervisor("delivery of messages to the handler").repeat(self._deliver_next))
            for _ in range(self._lanes)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def announce(self, holding: Holding) -> None:
        """Messages wait in ``holding``. It stands in line at most once, whatever it has."""
        if holding.line_up():
            self._ready.put_nowait(holding)

    async def _deliver_next(self) -> None:
        """Deliver one batch of the queue that is first in line. This is one step of a lane."""
        delivery = self._delivery
        holding = await self._ready.get()
        if not delivery.in_order:
            holding.announced = False
        elif pause := delivery.ready(holding):
            self._again(holding, pause)
            return
        try:
            batch = holding.take(self._batch)
        except Exception:
            # its messages wait still: the queue must stand in line again, or nobody would ask for them
            holding.announced = True
            self._again(holding, FAILED_PAUSE)
            raise
        if not batch:
            holding.announced = False
            return
        self.announce(holding)
        pause = 0.0
        try:
            pause = await delivery.deliver(holding, batch)
        except Exception:
            # a lane must outlive anything that delivering does
            log.exception("delivering %d messages of %s failed", len(batch), holding.queue)
            holding.release()
        if delivery.in_order:
            self._again(holding, pause)

    def _again(self, holding: Holding, pause: float) -> None:
        """Let the queue stand in line again, after a pause."""
        if pause:
            asyncio.get_running_loop().call_later(pause, self._again, holding, 0.0)
        else:
            holding.announced = False
            self.announce(holding)
