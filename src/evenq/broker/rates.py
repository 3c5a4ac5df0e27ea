"""How fast things go: counters, looked at from time to time, and how much they grew over a minute, an hour, a day.

Whoever counts only counts: a look is taken every 10 s, kept as long as the spans need it, and compared with what
the counters say now. So a rate costs the path of a message nothing but its counter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["DAY", "HOUR", "MINUTE", "Counters", "Growth", "Key", "Rates"]

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0

# How long looks are kept, and how far they are apart: as with the Java broker.
_KEPT = ((MINUTE, 10.0), (HOUR, 600.0), (DAY, 3600.0))

# the name of a statistic, and what it is of
Key = tuple[str, str]


class Counters(Protocol):
    """What is counted."""

    def get(self, key: Key) -> int | None:
        """The count now; None where there is no such counter."""

    def all(self) -> Mapping[Key, int]:
        """All counts now."""


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much a counter grew over a span, and that per second."""

    sum: int = 0
    tps: float = 0.0


@dataclass(frozen=True, slots=True)
class _Look:
    time: float
    counts: Mapping[Key, int]


class _Looks:
    """The looks of one length of time, oldest first."""

    __slots__ = ("_every", "_kept", "length")

    def __init__(self, length: float, every: float) -> None:
        self.length = length
        self._every = every
        self._kept: deque[_Look] = deque()

    def add(self, look: _Look) -> None:
        if not self._kept or look.time - self._kept[-1].time >= self._every:
            self._kept.append(look)
        # the one that is just too old is kept: without it the time would begin too late
        while len(self._kept) > 1 and self._kept[1].time <= look.time - self.length:
            self._kept.popleft()

    def before(self, time: float) -> _Look:
        """The last look at ``time`` or earlier, or the first there is."""
        for look in reversed(self._kept):
            if look.time <= time:
                return look
        return self._kept[0]


class Rates:
    """The growth of counters.

    >>> class Orders(dict):
    ...     all = dict.copy
    >>> now, counters = [0.0], Orders({("TOPIC_PUT_NUMS", "orders"): 0})
    >>> rates = Rates(counters, clock=lambda: now[0])
    >>> now[0], counters["TOPIC_PUT_NUMS", "orders"] = 20.0, 500
    >>> rates.over(MINUTE, ("TOPIC_PUT_NUMS", "orders"))
    Growth(sum=500, tps=25.0)
    """

    def __init__(self, counters: Counters, clock: Callable[[], float]) -> None:
        self._counters = counters
        self._clock = clock
        self._looks = [_Looks(*kept) for kept in _KEPT]
        self._due = float("-inf")
        self.tick()

    def tick(self) -> None:
        """Take a look if one is due; to be called every few seconds."""
        now = self._clock()
        if now >= self._due:
            self._due = now + _KEPT[0][1]
            look = _Look(now, self._counters.all())
            for looks in self._looks:
                looks.add(look)

    def over(self, seconds: float, key: Key) -> Growth:
        """The growth over the last seconds, a day at most; since the start where that is not so long ago."""
        count = self._counters.get(key)
        if count is None:
            return Growth()
        now = self._clock()
        looks = next((looks for looks in self._looks if looks.length >= seconds), self._looks[-1])
        then = looks.before(now - seconds)
        grown = max(0, count - then.counts.get(key, 0))
        return Growth(grown, round(grown / max(now - then.time, 1.0), 2))
