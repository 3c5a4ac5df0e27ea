"""How long messages are kept: whole files of the commit log go, the oldest first; the one being filled stays.

The Java broker goes by the times of its files and looks once a day; evenq goes by the times of the messages in them,
and looks all the time.

A clock that is wrong for a moment must not delete anything. So no file is deleted because of its age in the first ten
minutes after a start or a jump of the clock, nor once ten files were deleted within a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evenq.errors import ArgumentError

__all__ = ["DeletionPace", "Retention", "first_kept"]

_HOUR = 3_600_000

# In seconds: how far the clock may be from where it should be, how long it is watched then, and how many files may go
# by their age in how long a time.
_JUMP = 60.0
_WATCHED = 600.0
_FILES, _IN = 10, 60.0


class DeletionPace:
    """Says how many files may be deleted by their age now. ``clock`` may be set, ``monotonic`` may not.

    >>> now = [1000.0]
    >>> pace = DeletionPace(lambda: now[0], lambda: now[0])
    >>> before = pace.allowance()
    >>> now[0] += 600
    >>> before, pace.allowance()
    (0, 10)
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._last = clock(), monotonic()
        self._deletes_from = self._last[1] + _WATCHED
        # when files were deleted
        self._deleted: deque[float] = deque()

    def allowance(self) -> int:
        wall, steady = now = self._clock(), self._monotonic()
        if abs((wall - self._last[0]) - (steady - self._last[1])) > _JUMP:
            self._deletes_from = steady + _WATCHED
        self._last = now
        if steady < self._deletes_from:
            return 0
        while self._deleted and self._deleted[0] <= steady - _IN:
            self._deleted.popleft()
        return max(0, _FILES - len(self._deleted))

    def deleted(self, count: int) -> None:
        """Note that files were deleted, for whatever reason: all of them count."""
        self._deleted.extend([self._last[1]] * count)


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep messages for ``hours``, and at most ``size`` bytes of them; None for as many as there are."""

    hours: float = 72.0
    size: int | None = None

    def __post_init__(self) -> None:
        if self.hours <= 0:
            raise ArgumentError("hours", self.hours, "give how long messages are kept, more than 0")
        if self.size is not None and self.size <= 0:
            raise ArgumentError("size", self.size, "give the bytes that are kept, more than 0, or None for no limit")


def first_kept(
    starts: Sequence[int],
    end: int,
    first_time: Callable[[int], float],
    now: int,
    retention: Retention,
    most_by_age: int | None = None,
) -> int:
    """Which of the log files that begin at ``starts``, the last being filled up to ``end``, is the first to keep.

    ``first_time`` gives when the first message of a file was stored: all of those in the file before it are older. One
    that is ahead of ``now`` is no reason to delete anything. At most ``most_by_age`` files go because they are old.

    >>> times = {0: 0, 100: 5 * 3_600_000, 200: 9 * 3_600_000}
    >>> first_kept([0, 100, 200], 250, times.__getitem__, 10 * 3_600_000, Retention(hours=5))
    100
    >>> first_kept([0, 100, 200], 250, times.__getitem__, 10 * 3_600_000, Retention(size=60))
    200
    """
    oldest = now - retention.hours * _HOUR
    by_age = 0
    for start, following in pairwise(starts):
        too_large = retention.size is not None and end - start > retention.size
        if not too_large:
            if by_age == most_by_age or first_time(following) > oldest:
                return start
            by_age += 1
    return starts[-1] if starts else 0
