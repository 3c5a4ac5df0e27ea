"""Leaving out what a writing query sent again: a row is a duplicate if an earlier message of its queue has its mark.

That depends on nothing but what the queue holds, so a batch that is run again leaves out the same rows. A batch that a
query writes again comes after the first try and before its next epoch. So when a task meets a query, it looks back from
the beginning of its range until it sees an earlier epoch of that query, and knows all marks that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenq.spark.marks import epoch_of

__all__ = ["LOOK_BACK", "Deduplicator"]

# How many offsets a task looks back, first, and at most.
FIRST_LOOK = 1000
LOOK_BACK = 100_000

# The marks of the offsets from the first up to, not including, the second; None for messages without one.
Earlier = Callable[[int, int], Sequence[str | None]]


class Deduplicator:
    """Looks at the marks of one range of one queue, in order, from ``start`` on.

    >>> seen = Deduplicator(0, lambda low, high: [])
    >>> seen.fresh(["q.1.0.0.aa", "q.1.0.1.bb", None, "q.1.0.0.aa"])
    [True, True, True, False]
    """

    def __init__(self, start: int, earlier: Earlier) -> None:
        self._earlier = earlier
        # marks before the range, newest first, as far back as somebody looked
        self._looked_to = start
        self._start = start
        self._before: list[str] = []
        # query -> its newest epoch here, and the marks of that and of the one before
        self._epochs: dict[str, int] = {}
        self._marks: dict[str, dict[int, set[str]]] = {}

    def fresh(self, marks: Sequence[str | None]) -> list[bool]:
        """For each mark whether its row is new."""
        return [mark is None or self._is_fresh(mark) for mark in marks]

    def _is_fresh(self, mark: str) -> bool:
        query, epoch = epoch_of(mark)
        if query not in self._marks:
            self._marks[query] = {epoch: self._find(query, epoch)}
            self._epochs[query] = epoch
        if epoch > self._epochs[query]:
            self._marks[query] = {epoch: set(), epoch - 1: self._marks[query].get(epoch - 1, set())}
            self._epochs[query] = epoch
        seen = self._marks[query].setdefault(epoch, set())
        if mark in seen:
            return False
        seen.add(mark)
        return True

    def _find(self, query: str, epoch: int) -> set[str]:
        """The marks of an epoch that lie before the range."""
        found: set[str] = set()
        at = 0
        while True:
            for mark in self._before[at:]:
                whose, when = epoch_of(mark)
                if whose == query and when < epoch:
                    return found
                if whose == query and when == epoch:
                    found.add(mark)
            at = len(self._before)
            if not self._look_further():
                return found

    def _look_further(self) -> bool:
        """Look twice as far back as so far; False where there is nothing more to see."""
        looked = self._start - self._looked_to
        low = max(0, self._start - min(LOOK_BACK, max(FIRST_LOOK, 2 * looked)))
        if low == self._looked_to:
            return False
        marks = self._earlier(low, self._looked_to)
        self._looked_to = low
        self._before.extend(mark for mark in reversed(marks) if mark is not None)
        return True
