"""A clock that tests move."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Runs like the real one, ahead of it by as much as it was moved.

    >>> clock = Clock()
    >>> before = clock.now()
    >>> clock.advance(60)
    >>> 60 <= clock.now() - before < 61
    True
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
