"""Closing a client: every step is taken whatever the others raise, and only once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from evenq.errors import StateError

__all__ = ["Closing"]

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
