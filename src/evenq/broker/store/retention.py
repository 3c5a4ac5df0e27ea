"""How long messages are kept: whole files of the commit log go, the oldest first; the one being filled stays.

The Java broker goes by the times of its files and looks once a day; evenq goes by the times of the messages in them,
and looks all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evenq.errors import ArgumentError

__all__ = ["Retention", "first_kept"]

_HOUR = 3_600_000


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
    starts: Sequence[int], end: int, first_time: Callable[[int], float], now: int, retention: Retention
) -> int:
    """Which of the log files that begin at ``starts``, the last being filled up to ``end``, is the first to keep.

    ``first_time`` gives when the first message of a file was stored: all of those in the file before it are older.

    >>> times = {0: 0, 100: 5 * 3_600_000, 200: 9 * 3_600_000}
    >>> first_kept([0, 100, 200], 250, times.__getitem__, 10 * 3_600_000, Retention(hours=5))
    100
    >>> first_kept([0, 100, 200], 250, times.__getitem__, 10 * 3_600_000, Retention(size=60))
    200
    """
    oldest = now - retention.hours * _HOUR
    for start, following in pairwise(starts):
        too_large = retention.size is not None and end - start > retention.size
        if not too_large and first_time(following) > oldest:
            return start
    return starts[-1] if starts else 0
