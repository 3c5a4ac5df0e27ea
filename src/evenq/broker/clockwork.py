"""Time: what it is, and what a broker does because it has passed: deliver what was delayed, ask about half messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from evenq.supervision import FailureLog, Supervisor, callable_name

__all__ = ["Clockwork", "TrustedClock", "monotonic_beside"]

log = logging.getLogger(__name__)

# A wall clock that goes by so much more or less than time does has been set. That is believed when it has lasted.
_JUMP_S = 60.0
_BELIEVED_AFTER_S = 60.0

# How long a failure (the disk is full) is left alone before the next try.
_AFTER_FAILURE = 1.0


def monotonic_beside(clock: Callable[[], float]) -> Callable[[], float]:
    """What measures how long things take beside a wall clock. A clock that is not the system's measures that, too."""
    return time.monotonic if clock is time.time else clock


class TrustedClock:
    """Wall time for messages and what is due. Where the clock is set by more than a minute, it goes on as before, and
    follows when the new time has lasted a minute.

    Otherwise a clock that is wrong for a moment would let messages be deleted, or be delivered days early.

    >>> wall, passed = [1000.0], [0.0]
    >>> clock = TrustedClock(lambda: wall[0], lambda: passed[0])
    >>> wall[0], passed[0] = 90_002.0, 2.0
    >>> clock()
    1002.0
    >>> wall[0], passed[0] = 90_062.0, 62.0
    >>> clock()
    90062.0
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        # what the wall clock has more than the other one
        self._ahead = clock() - monotonic()
        # what it has more since it was set, and when that was seen
        self._set_ahead = self._ahead
        self._set_at: float | None = None

    def __call__(self) -> float:
        wall, now = self._clock(), self._monotonic()
        ahead = wall - now
        if -_JUMP_S <= ahead - self._ahead <= _JUMP_S:
            # the usual case first: this is asked for each message that is stored
            self._ahead, self._set_at = ahead, None
            return wall
        if self._set_at is None or abs(ahead - self._set_ahead) > _JUMP_S:
            self._set_ahead, self._set_at = ahead, now
            log.warning(
                "the system clock jumped by %+.0f s: the broker keeps the old time, and follows if the jump lasts %g s",
                ahead - self._ahead,
                _BELIEVED_AFTER_S,
            )
        elif now - self._set_at >= _BELIEVED_AFTER_S:
            self._ahead, self._set_at = ahead, None
        return now + self._ahead


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
