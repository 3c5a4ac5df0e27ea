"""How fast a member is, topic by topic: what it tells to administrators who ask."""

from __future__ import annotations

import time
from collections.abc import Callable

from evenq.protocol.bodies import MemberStats

__all__ = ["Stats", "Window"]


class Window:
    """A sum and a count over the last ``seconds``, in ``slots`` steps.

    >>> now = [0.0]
    >>> window = Window(60, 6, clock=lambda: now[0])
    >>> window.add(30); now[0] = 59.0; window.add(10); window.sum, window.count
    (40.0, 2)
    >>> now[0] = 61.0; window.sum, window.count
    (10.0, 1)
    """

    __slots__ = ("_clock", "_counts", "_slot", "_step", "_sums", "seconds")

    def __init__(self, seconds: float, slots: int, *, clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self._clock = clock
        self._step = seconds / slots
        self._slot = int(clock() / self._step)
        self._sums = [0.0] * slots
        self._counts = [0] * slots

    def add(self, value: float, count: int = 1) -> None:
        self._move()
        at = self._slot % len(self._sums)
        self._sums[at] += value
        self._counts[at] += count

    @property
    def sum(self) -> float:
        self._move()
        return sum(self._sums)

    @property
    def count(self) -> int:
        self._move()
        return sum(self._counts)

    @property
    def mean(self) -> float:
        count = self.count
        return self.sum / count if count else 0.0

    def _move(self) -> None:
        """Empty the slots whose time has come round again."""
        slot, slots = int(self._clock() / self._step), len(self._sums)
        for gone in range(max(self._slot + 1, slot - slots + 1), slot + 1):
            self._sums[gone % slots] = 0.0
            self._counts[gone % slots] = 0
        self._slot = slot


class _Topic:
    """The windows of one topic; times are in milliseconds, as administrators are used to."""

    __slots__ = ("consume_ms", "failed", "failed_hour", "ok", "pulled")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.pulled, self.consume_ms, self.ok, self.failed = (Window(60, 12, clock=clock) for _ in range(4))
        self.failed_hour = Window(3600, 12, clock=clock)


class Stats:
    """What one member has pulled and consumed in the last minute, by topic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, count: int) -> None:
        self._topic(topic).pulled.add(count)

    def consumed(self, topic: str, count: int, seconds: float, *, ok: bool) -> None:
        found = self._topic(topic)
        found.consume_ms.add(seconds * 1000)
        if ok:
            found.ok.add(count)
        else:
            found.failed.add(count)
            found.failed_hour.add(count)

    def of(self, topic: str) -> MemberStats:
        found = self._topics.get(topic)
        if found is None:
            return MemberStats()
        return MemberStats(
            pull_tps=found.pulled.sum / found.pulled.seconds,
            consume_rt=found.consume_ms.mean,
            consume_ok_tps=found.ok.sum / found.ok.seconds,
            consume_failed_tps=found.failed.sum / found.failed.seconds,
            consume_failed_msgs=int(found.failed_hour.sum),
        )

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = _Topic(self._clock)
        return found
