"""What a broker does because time has passed: deliver what was delayed, ask about half messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from evenq.supervision import FailureLog, Supervisor, callable_name

__all__ = ["Clockwork"]

# How long a failure (the disk is full) is left alone before the next try.
_AFTER_FAILURE = 1.0


class Clockwork:
    """Calls each of ``parts`` every ``period`` seconds, and again at once while one says that it has more to do.

    The parts look at the broker's own clock, which need not be the system's. After a part that fails, ``discard`` is
    called: what it has staged in the store must not be stored with the next turn.
    """

    def __init__(
        self,
        parts: Sequence[Callable[[], bool]],
        period: float,
        discard: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._parts = [(part, FailureLog(callable_name(part))) for part in parts]
        self._period = period
        self._discard = discard
        self._sleep = sleep
        self._pause = period
        # whether a part failed since the last pause
        self._failed = False

    def tick(self) -> bool:
        """Let each part do some of what is due; whether there is more. A part that fails is logged by its name."""
        more = [self._do(part, failures) for part, failures in self._parts]
        return any(more)

    def _do(self, part: Callable[[], bool], failures: FailureLog) -> bool:
        try:
            return part()
        except Exception as error:  # noqa: BLE001 - the other parts must have their turn whatever it is
            failures.record(error, f"trying again in {_AFTER_FAILURE:g} s")
            self._failed = True
            self._discard()
            return False

    async def run(self) -> None:
        await Supervisor("scheduled delivery").repeat(self._step)

    async def _step(self) -> None:
        await self._sleep(self._pause)
        self._failed = False
        # much work is done in parts, between which others have their turn
        more = self.tick()
        self._pause = 0 if more else _AFTER_FAILURE if self._failed else self._period
