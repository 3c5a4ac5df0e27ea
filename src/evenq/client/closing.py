"""Closing a client: every step is taken whatever the others raise, and only once; and the signal that asks for it."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from evenq.errors import StateError

__all__ = ["Closing", "sigterm_calls"]

log = logging.getLogger(__name__)


class Closing:
    """The end of one client: begun by its first close, waited for by all others."""

    def __init__(self) -> None:
        self.begun = False
        self._ended = asyncio.Event()

    def check_open(self, what: str) -> None:
        if self.begun:
            raise StateError(f"this {what} is closed: make a new one")

    async def run(self, *steps: Callable[[], Awaitable[object]]) -> None:
        """Take the steps in their order, each in any case, then raise the first error that there was.

        Whoever comes later takes none and waits until they are done. A cancellation ends the step that is being taken,
        and no other: what a step leaves open would stay open for as long as the process lives.
        """
        if self.begun:
            await self._ended.wait()
            return
        self.begun = True
        first: Exception | asyncio.CancelledError | None = None
        try:
            for step in steps:
                try:
                    await step()
                except (Exception, asyncio.CancelledError) as error:
                    if first is None:
                        first = error
                    elif isinstance(error, Exception):
                        log.error("another error while a client was closed", exc_info=error)
        finally:
            self._ended.set()
        if first is not None:
            raise first


@contextmanager
def sigterm_calls(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM call ``stop`` until the block ends, so that a service ends in good order.

    Only in the main thread, and only where nothing else handles the signal. A second SIGTERM ends the process at once.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
