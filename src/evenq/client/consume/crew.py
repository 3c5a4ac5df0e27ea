"""Handing messages to a handler that is a plain function: batches go to threads and come back, without any task."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from evenq.client.consume.dispatch import FAILED_PAUSE, Outcome
from evenq.client.consume.holding import Holding
from evenq.protocol.view import MessageView
from evenq.supervision import Supervisor

__all__ = ["Crew", "ThreadDelivery"]

log = logging.getLogger(__name__)


class ThreadDelivery(Protocol):
    """What becomes of the messages of a batch."""

    def begin(self, holding: Holding, batch: list[MessageView], ended: Callable[[Outcome], None]) -> None:
        """Call the handler; ``ended`` hears later what it said."""
        ...

    def end(self, holding: Holding, batch: list[MessageView], outcome: Outcome) -> None:
        """Do with the messages what the handler said."""
        ...


class Crew:
    """At most so many batches are in threads at a time. Queues with messages take turns, so that none starves another.

    It does what a :class:`~evenq.client.consume.dispatch.Dispatcher` does with tasks. A handler that is quick has a
    batch for less time than a task takes to wait for it.
    """

    def __init__(self, delivery: ThreadDelivery, most: int, batch: int) -> None:
        self._delivery = delivery
        self._most = most
        self._batch = batch
        self._line: deque[Holding] = deque()
        self._running = 0
        self._stopped = False
        self._supervisor = Supervisor("delivery of messages to the handler", first_pause_s=FAILED_PAUSE)

    def start(self) -> None:
        """Nothing has to: whoever announces messages sets it going."""

    async def stop(self) -> None:
        self._stopped = True

    def announce(self, holding: Holding) -> None:
        """Messages wait in ``holding``. It stands in line at most once, whatever it has."""
        self._queue(holding)
        self._go_on()

    def _queue(self, holding: Holding) -> None:
        if holding.line_up():
            self._line.append(holding)

    def _go_on(self) -> None:
        while self._line and self._running < self._most and not self._stopped:
            holding = self._line.popleft()
            holding.announced = False
            try:
                batch = holding.take(self._batch)
            except Exception as error:  # noqa: BLE001 - see _failed
                self._put_off(holding, error)
                continue
            if batch:
                self._queue(holding)
                self._running += 1
                try:
                    self._delivery.begin(holding, batch, partial(self._ended, holding, batch))
                except Exception:  # noqa: BLE001 - see below
                    self._running -= 1
                    self._failed(holding, batch)

    def _ended(self, holding: Holding, batch: list[MessageView], outcome: Outcome) -> None:
        self._running -= 1
        try:
            self._delivery.end(holding, batch, outcome)
        except Exception:  # noqa: BLE001 - see below
            self._failed(holding, batch)
        self._go_on()

    def _put_off(self, holding: Holding, error: Exception) -> None:
        """The queue stands in line again later: its messages wait still, and nobody else would ask for them."""
        pause = self._supervisor.failed(error)
        holding.announced = True

        def again() -> None:
            holding.announced = False
            self.announce(holding)

        asyncio.get_running_loop().call_later(pause, again)

    def _failed(self, holding: Holding, batch: list[MessageView]) -> None:
        """The crew must outlive anything that delivering does."""
        log.exception("delivering %d messages of %s failed", len(batch), holding.queue)
        holding.release()
