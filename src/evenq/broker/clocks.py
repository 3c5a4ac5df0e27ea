"""What time it is, and how long things take, whoever sets the clock meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["TrustedClock", "monotonic_beside"]

log = logging.getLogger(__name__)

# A wall clock that goes by so much more or less than time does has been set. That is believed when it has lasted.
_JUMP_S = 60.0
_BELIEVED_AFTER_S = 60.0


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
