"""What goes through a broker, and how fast: messages in by topic, and out by topic and group, under Java's names.

Counters are looked at from time to time (:class:`Rates`), for how much they grew over a minute, an hour, a day. Whoever
counts only counts: a sample is taken every 10 s, kept as long as the spans need it, and compared with what the counters
say now. So a rate costs the path of a message nothing but its counter.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from evenq.broker.store.store import Store

__all__ = [
    "BROKER_GET",
    "BROKER_PUT",
    "DAY",
    "GROUP_GET",
    "HOUR",
    "MINUTE",
    "TOPIC_PUT",
    "Counters",
    "Key",
    "Rate",
    "Rates",
    "Traffic",
]

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0

# How long samples are kept, and how far they are apart: as with the Java broker.
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
class Rate:
    """By how much a counter grew over a span, and that per second."""

    sum: int = 0
    tps: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sample:
    time: float
    counts: Mapping[Key, int]


class _Samples:
    """The samples of one length of time, oldest first."""

    __slots__ = ("_every", "_kept", "length")

    def __init__(self, length: float, every: float) -> None:
        self.length = length
        self._every = every
        self._kept: deque[_Sample] = deque()

    def add(self, sample: _Sample) -> None:
        if not self._kept or sample.time - self._kept[-1].time >= self._every:
            self._kept.append(sample)
        # the one that is just too old is kept: without it the time would begin too late
        while len(self._kept) > 1 and self._kept[1].time <= sample.time - self.length:
            self._kept.popleft()

    def before(self, time: float) -> _Sample:
        """The last sample at ``time`` or earlier, or the first there is."""
        for sample in reversed(self._kept):
            if sample.time <= time:
                return sample
        return self._kept[0]


class Rates:
    """The growth of counters.

    >>> class Orders(dict):
    ...     all = dict.copy
    >>> now, counters = [0.0], Orders({("TOPIC_PUT_NUMS", "orders"): 0})
    >>> rates = Rates(counters, clock=lambda: now[0])
    >>> now[0], counters["TOPIC_PUT_NUMS", "orders"] = 20.0, 500
    >>> rates.over(MINUTE, ("TOPIC_PUT_NUMS", "orders"))
    Rate(sum=500, tps=25.0)
    """

    def __init__(self, counters: Counters, clock: Callable[[], float]) -> None:
        self._counters = counters
        self._clock = clock
        self._samples = [_Samples(*kept) for kept in _KEPT]
        self._due = float("-inf")
        self.tick()

    def tick(self) -> None:
        """Take a sample if one is due; to be called every few seconds."""
        now = self._clock()
        if now >= self._due:
            self._due = now + _KEPT[0][1]
            sample = _Sample(now, self._counters.all())
            for samples in self._samples:
                samples.add(sample)

    def over(self, seconds: float, key: Key) -> Rate:
        """The growth over the last seconds, a day at most; since the start where that is not so long ago."""
        count = self._counters.get(key)
        if count is None:
            return Rate()
        now = self._clock()
        samples = next((samples for samples in self._samples if samples.length >= seconds), self._samples[-1])
        then = samples.before(now - seconds)
        grown = max(0, count - then.counts.get(key, 0))
        return Rate(grown, round(grown / max(now - then.time, 1.0), 2))


TOPIC_PUT = "TOPIC_PUT_NUMS"
GROUP_GET = "GROUP_GET_NUMS"
BROKER_PUT = "BROKER_PUT_NUMS"
BROKER_GET = "BROKER_GET_NUMS"


class Traffic:
    """Counters since the store was begun (in) and since this process was started (out).

    What came in needs no counting: where the queues end tells it.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._out: defaultdict[tuple[str, str], int] = defaultdict(int)

    def sent(self, topic: str, group: str, count: int) -> None:
        """Messages of a topic went out to a member of a group."""
        self._out[topic, group] += count

    def get(self, key: Key) -> int | None:
        name, of = key
        if name == GROUP_GET:
            topic, _, group = of.rpartition("@")
            return self._out.get((topic, group))
        if name == TOPIC_PUT:
            ends = [queue.max for queue in self._store.queues() if queue.topic == of]
            return sum(ends) if ends else None
        return self._totals().get(key)

    def all(self) -> dict[Key, int]:
        topics: defaultdict[Key, int] = defaultdict(int)
        for queue in self._store.queues():
            topics[TOPIC_PUT, queue.topic] += queue.max
        groups = {(GROUP_GET, f"{topic}@{group}"): count for (topic, group), count in self._out.items()}
        return {**topics, **groups, **self._totals()}

    def _totals(self) -> dict[Key, int]:
        return {
            (BROKER_PUT, self._cluster): sum(queue.max for queue in self._store.queues()),
            (BROKER_GET, self._cluster): sum(self._out.values()),
        }
