"""What a broker does because time has passed: deliver what was delayed, ask about half messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from evenq.supervision import FailureLog, Supervisor, callable_name

__all__ = ["Scheduler"]

# How long a failure (the disk is full) is left alone before the next try.
_AFTER_FAILURE = 1.0


class Scheduler:
    """Calls each of ``steps`` every ``period`` seconds, and again at once while one says that it has more to do.

    The steps look at the broker's own clock, which need not be the system's. After a step that fails, ``discard`` is
    called: what it has staged in the store must not be stored with the next turn.
    """

    def __init__(
        self,
        steps: Sequence[Callable[[], bool]],
        period: float,
        discard: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._steps = [(step, FailureLog(callable_name(step))) for step in steps]
        self._period = period
        self._discard = discard
        self._sleep = sleep
        self._pause = period
        # whether a step failed since the last pause
        self._failed = False

    def run_due(self) -> bool:
        """Let each step do some of what is due; whether there is more. A step that fails is logged by its name."""
        more = [self._do(step, failures) for step, failures in self._steps]
        return any(more)

    def _do(self, step: Callable[[], bool], failures: FailureLog) -> bool:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - the other steps must have their turn whatever it is
            failures.record(error, f"trying again in {_AFTER_FAILURE:g} s")
            self._failed = True
            self._discard()
            return False

    async def run(self) -> None:
        await Supervisor("scheduled delivery").repeat(self._run_once)

    async def _run_once(self) -> None:
        await self._sleep(self._pause)
        self._failed = False
        # much work is done in steps, between which others have their turn
        more = self.run_due()
        self._pause = 0 if more else _AFTER_FAILURE if self._failed else self._period
