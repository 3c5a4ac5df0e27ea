"""The sizes of the records that came last: whoever follows the log need not look for their beginnings again."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable

__all__ = ["RecentSizes"]

# What is kept together: so many records, or so many bytes of them.
_RUN = 4096
_RUN_BYTES = 512 * 1024
# Of more runs than these it is cheaper to read the log than to keep them.
_MOST = 512


class _Run:
    """Records one behind the other."""

    __slots__ = ("begin", "end", "sizes")

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.sizes = array("i")

    @property
    def is_full(self) -> bool:
        return len(self.sizes) >= _RUN or self.end - self.begin >= _RUN_BYTES


class RecentSizes:
    """Sizes of records by where they begin in the log.

    >>> recent = RecentSizes()
    >>> recent.add(100, 50, [20, 30])
    >>> recent.add(150, 40, [40])
    >>> recent.begin, recent.take(100), recent.take(100)
    (100, array('i', [20, 30, 40]), None)
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque(maxlen=_MOST)

    def add(self, at: int, total: int, sizes: Iterable[int]) -> None:
        """Note records at ``at`` which have these sizes, and ``total`` bytes together."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.end != at or run.is_full:
            run = _Run(at)
            self._runs.append(run)
        run.sizes.extend(sizes)
        run.end += total

    @property
    def begin(self) -> int | None:
        """Where the first record is whose size is known."""
        return self._runs[0].begin if self._runs else None

    def take(self, position: int, most: int = 0) -> array[int] | None:
        """The sizes of the records at ``position`` and behind it: a run of them, and more while they have at most
        ``most`` bytes. What lies before is forgotten."""
        runs = self._runs
        while runs and runs[0].begin < position:
            runs.popleft()
        if not runs or runs[0].begin > position:
            return None
        first = runs.popleft()
        end = first.end
        while runs and runs[0].begin == end and runs[0].end - position <= most:
            end = runs[0].end
            first.sizes.extend(runs.popleft().sizes)
        return first.sizes

    def forget(self) -> None:
        """Forget all: something else will be written there."""
        self._runs.clear()
