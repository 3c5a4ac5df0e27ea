"""Axes: round numbers for ticks, values to pixels, a frame with grid lines and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from evenq.plot.svg import FAINT, GRID, INK, MUTED, Picture

__all__ = ["Axes", "Scale", "round_ticks", "tick_label"]


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from at or below ``low`` to at or above ``high``, about ``most`` of them.

    >>> round_ticks(0, 83)
    [0, 20, 40, 60, 80, 100]
    """
    span = max(high - low, 1e-9)
    power = 10 ** floor(log10(span / most))
    step = next(power * nice for nice in (1, 2, 5, 10) if span / (power * nice) <= most)
    # counted in steps: adding a step of 0.1 again and again would not end on a round number
    return [round(number * step, 10) for number in range(floor(low / step), ceil(high / step) + 1)]


def tick_label(value: float) -> str:
    return f"{value:,.10g}"


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels, in a straight line."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


class Axes:
    """A frame in a picture: from its ticks the scales follow, by which a chart places its marks."""

    def __init__(
        self,
        picture: Picture,
        left: float,
        top: float,
        width: float,
        height: float,
        *,
        x_ticks: Sequence[float],
        y_ticks: Sequence[float],
    ) -> None:
        self.picture = picture
        self.left, self.top, self.right, self.bottom = left, top, left + width, top + height
        self.x = Scale(x_ticks[0], x_ticks[-1], self.left, self.right)
        self.y = Scale(y_ticks[0], y_ticks[-1], self.bottom, self.top)
        self._x_ticks, self._y_ticks = x_ticks, y_ticks

    def draw(self, x_label: str, y_label: str) -> None:
        page = self.picture
        for value in self._y_ticks:
            page.line(self.left, self.y(value), self.right, self.y(value), stroke=GRID)
            page.text(self.left - 8, self.y(value) + 4, tick_label(value), size=12, anchor="end", fill=MUTED)
        for value in self._x_ticks:
            page.line(self.x(value), self.bottom, self.x(value), self.bottom + 5, stroke=FAINT)
            page.text(self.x(value), self.bottom + 20, tick_label(value), size=12, anchor="middle", fill=MUTED)
        page.line(self.left, self.bottom, self.right, self.bottom, stroke=FAINT)
        page.text((self.left + self.right) / 2, self.bottom + 42, x_label, anchor="middle", fill=INK)
        page.text(self.left - 48, (self.top + self.bottom) / 2, y_label, anchor="middle", fill=INK, turned=True)
