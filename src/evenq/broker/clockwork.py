"""What a broker does because time has passed: deliver what was delayed, ask about half messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Clockwork"]

log = logging.getLogger(__name__)

# How long a failure (the disk is full) is left alone before the next try.
_AFTER_FAILURE = 1.0


class Clockwork:
    """Calls each of ``parts`` every ``period`` seconds, and again at once while one says that it has more to do.

    The parts look at the broker's own clock, which need not be the system's.
    """

    def __init__(
        self,
        parts: Sequence[Callable[[], bool]],
        period: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._parts = parts
        self._period = period
        self._sleep = sleep

    def tick(self) -> bool:
        """Let each part do some of what is due; whether there is more."""
        more = [part() for part in self._parts]
        return any(more)

    async def run(self) -> None:
        pause = self._period
        while True:
            await self._sleep(pause)
            try:
                # much work is done in parts, between which others have their turn
                pause = 0 if self.tick() else self._period
            except Exception:
                log.exception("what is due now cannot be done; trying again in %g s", _AFTER_FAILURE)
                pause = _AFTER_FAILURE
