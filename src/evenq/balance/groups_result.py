"""What came of a change in many groups: the measures of :mod:`evenq.balance.measures`, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from evenq.balance.groups_draw import Array, Draw, count
from evenq.balance.groups_holders import NOBODY
from evenq.balance.groups_sticky import who_holds_more
from evenq.balance.measures import ratio

__all__ = ["FULLNESS_STEP", "GroupsResult", "measure"]

# Fullness is counted in steps of so many percent.
FULLNESS_STEP = 5


@dataclass(slots=True)
class GroupsResult:
    """One strategy over all groups.

    ``moved``, ``unheld``: queues, all groups together. ``least``: the fewest moves by which groups that were even
    could have stayed even, the same for all strategies; ``to_even``: by which this strategy's groups could have
    become even. ``exact``: groups that moved just that many. ``loads``, ``spreads``: how many members, groups have
    each value after the change.

    What has to do with traffic counts messages where it is known how many each queue gets, else queues:
    ``traffic_moved`` adds up the shares of their traffic that moved in each group, ``fullness`` is how many groups have
    a fullest member with so many percent of the mean.
    """

    strategy: str
    groups: int = 0
    moved: int = 0
    least: int = 0
    to_even: int = 0
    exact: int = 0
    unheld: int = 0
    # the sum over groups of the fullest member's load as a multiple of the mean, in queues and in traffic
    peaks: float = 0.0
    traffic_peaks: float = 0.0
    traffic_moved: float = 0.0
    loads: dict[int, int] = field(default_factory=dict)
    spreads: dict[int, int] = field(default_factory=dict)
    fullness: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Moves as a multiple of the least, over all groups."""
        return ratio(self.moved, self.least)

    @property
    def mean_spread(self) -> float:
        return sum(spread * groups for spread, groups in self.spreads.items()) / self.groups

    @property
    def max_spread(self) -> int:
        return max(self.spreads)

    @property
    def mean_peak(self) -> float:
        return self.peaks / self.groups

    @property
    def mean_traffic_peak(self) -> float:
        return self.traffic_peaks / self.groups

    def fullness_at(self, share: float) -> float:
        """The fullest member's load as a multiple of the mean, that this share of groups stays within."""
        left = share * self.groups
        for percent, groups in sorted(self.fullness.items()):
            left -= groups
            if left <= 0:
                return percent / 100
        return max(self.fullness) / 100

    def add(self, other: GroupsResult) -> None:
        """Take further groups in."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in HISTOGRAMS:
            both = Counter(getattr(self, name))
            both.update(getattr(other, name))
            setattr(self, name, dict(sorted(both.items())))

    @classmethod
    def total(cls, parts: Iterable[GroupsResult]) -> list[GroupsResult]:
        """One result per strategy, in the order in which strategies come."""
        totals: dict[str, GroupsResult] = {}
        for part in parts:
            totals.setdefault(part.strategy, cls(part.strategy)).add(part)
        return list(totals.values())


HISTOGRAMS = ("loads", "spreads", "fullness")
_SUMS = (
    "groups", "moved", "least", "to_even", "exact", "unheld", "peaks", "traffic_peaks", "traffic_moved", "seconds",
)  # fmt: skip


def measure(result: GroupsResult, draw: Draw, before: Array, after: Array, weights: Array | None = None) -> None:
    """Add the groups of a draw. ``weights`` [queue, group]: the traffic of each queue, all alike where not given."""
    loads = np.array([count(after == member) for member in draw.after])
    changed = (before != after) & (before != NOBODY) & (after != NOBODY)
    moved = count(changed)
    to_even = _to_even(draw, before)
    peaks = _peaks(loads)
    result.groups += draw.groups
    result.moved += int(moved.sum())
    result.unheld += int((after == NOBODY).sum())
    result.to_even += int(to_even.sum())
    result.exact += int((moved == to_even).sum())
    result.peaks += float(peaks.sum())
    result.loads = _tally(result.loads, loads)
    result.spreads = _tally(result.spreads, loads.max(axis=0) - loads.min(axis=0))
    if weights is None:
        result.traffic_moved += float((moved / len(before)).sum())
    else:
        peaks = _peaks(np.array([np.where(after == member, weights, 0).sum(axis=0) for member in draw.after]))
        result.traffic_moved += float((np.where(changed, weights, 0).sum(axis=0) / weights.sum(axis=0)).sum())
    result.traffic_peaks += float(peaks.sum())
    steps = np.rint(peaks * (100 / FULLNESS_STEP)).astype(np.intp)
    result.fullness = _tally(result.fullness, steps, step=FULLNESS_STEP)


def _peaks(loads: Array) -> Array:
    """[member, group] → :func:`evenq.balance.measures.peak` of each group."""
    total = loads.sum(axis=0)
    found: Array = np.where(total > 0, loads.max(axis=0) * len(loads) / np.where(total > 0, total, 1), 1.0)
    return found


def _to_even(draw: Draw, before: Array) -> Array:
    """:func:`evenq.balance.measures.least_moves` of every group."""
    topics = before.reshape(draw.pool.scenario.topics, -1, draw.groups)
    floor = topics.shape[1] // len(draw.after)
    # [topic, place, group]
    had = np.array([[count(holder == member) for member in draw.after] for holder in topics])
    more = had > floor
    kept = np.minimum(had, floor).sum(axis=(0, 1)) + (more & who_holds_more(more, topics.shape[1])).sum(axis=(0, 1))
    to_even: Array = count(before != NOBODY) - kept
    return to_even


def _tally(histogram: Mapping[int, int], values: Array, *, step: int = 1) -> dict[int, int]:
    found = dict(histogram)
    for value, times in enumerate(np.bincount(values.ravel()).tolist()):
        if times:
            found[value * step] = found.get(value * step, 0) + times
    return found
