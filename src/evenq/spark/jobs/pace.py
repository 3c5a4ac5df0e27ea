"""How fast work goes and how long it will take: pure, times are passed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["Pace", "State", "duration", "number", "sentence"]


@dataclass(frozen=True, slots=True)
class State:
    """How far some work is: what is done, of how much (None where nobody knows), and what else there is to say.

    ``unit`` is what is counted: rows, or tasks where Spark does not tell rows before the end.
    """

    done: int
    total: int | None = None
    unit: str = "rows"
    note: str = ""


class Pace:
    """The rate over the last while: what was slow an hour ago says nothing about the time that is left."""

    def __init__(self, window: float = 30.0) -> None:
        self._window = window
        # (time, done), oldest first; the first one is the newest that is older than the window
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, at: float, done: int) -> None:
        """At this time, so much was done."""
        self._seen.append((at, done))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """So many a second; None before there is something to tell it from."""
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else None

    def left(self, total: int | None) -> float | None:
        """Seconds until all is done, at this rate; None where nobody can tell."""
        if total is None or not self.rate or not self._seen:
            return None
        return max(0, total - self._seen[-1][1]) / self.rate


def number(value: float) -> str:
    """
    >>> number(1234567), number(0.5)
    ('1,234,567', '0.5')
    """
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """
    >>> duration(4.21), duration(75), duration(3720), duration(200_000)
    ('4.2 s', '1 min 15 s', '1 h 2 min', '2 d 7 h')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, part, parts in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {parts}" if rest else "")
    raise AssertionError(seconds)


def sentence(state: State, pace: Pace) -> str:
    """One line of progress.

    >>> pace = Pace()
    >>> pace.note(0.0, 0), pace.note(2.0, 500)
    (None, None)
    >>> sentence(State(500, 2000), pace)
    '500 of 2,000 rows, 250 a second, 6.0 s left'
    """
    parts = [f"{number(state.done)}{'' if state.total is None else f' of {number(state.total)}'} {state.unit}"]
    if (rate := pace.rate) is not None:
        parts.append(f"{number(rate)} a second")
    if (left := pace.left(state.total)) is not None and left > 0:
        parts.append(f"{duration(left)} left")
    return ", ".join([*parts, *([state.note] if state.note else [])])
