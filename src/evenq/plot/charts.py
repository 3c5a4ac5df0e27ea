"""Charts that any report can use: labelled points in a plane, and small bars side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from evenq.plot.axes import Axes, round_ticks, tick_label
from evenq.plot.svg import FAINT, GOOD, GOOD_INK, INK, MUTED, Picture, color, text_width

__all__ = ["Point", "bars", "scatter"]

LABEL = 13
LINE = 17


@dataclass(frozen=True, slots=True)
class Point:
    """A thing with a name, somewhere in the plane; the hint is what a browser shows of it."""

    name: str
    x: float
    y: float
    hint: str


def scatter(
    points: Sequence[Point],
    *,
    title: str,
    x_label: str,
    y_label: str,
    ideal: tuple[float, float],
    ideal_label: str,
    width: float = 720,
    height: float = 420,
) -> Picture:
    """Every point with its name. ``ideal``: the corner within which both values are as good as can be.

    ``ideal_label`` names the ideal of the y axis.
    """
    page = Picture(width, height, title=title)
    page.text(0, 18, title, size=16, bold=True)
    xs, ys = [point.x for point in points], [point.y for point in points]
    axes = Axes(
        page,
        66,
        40,
        width - 66 - 24,
        height - 40 - 56,
        x_ticks=round_ticks(0, max(*xs, ideal[0], 1) * 1.02, most=8),
        y_ticks=round_ticks(0, max(*ys, ideal[1], 1) * 1.05),
    )
    page.rect(axes.left, axes.y(ideal[1]), axes.x(ideal[0]) - axes.left, axes.bottom - axes.y(ideal[1]), fill=GOOD)
    axes.draw(x_label, y_label)
    page.line(axes.left, axes.y(ideal[1]), axes.right, axes.y(ideal[1]), stroke=GOOD_INK, width=1.5, dash="5 4")
    page.text(axes.left + 8, axes.bottom - 8, "ideal", size=12, fill=GOOD_INK)
    page.text(axes.right, axes.y(ideal[1]) - 7, ideal_label, size=12, anchor="end", fill=GOOD_INK)
    taken = [
        (axes.left + 8, axes.left + 8 + text_width("ideal", 12), axes.bottom - 12),
        (axes.right - text_width(ideal_label, 12), axes.right, axes.y(ideal[1]) - 11),
    ]
    places = _same_place(points, axes)
    for here, (x, y) in zip(places, _label_places(places, axes, taken), strict=True):
        page.text(x, y + 4.5, _names(here), size=LABEL, halo=True)
    numbers = {point: number for number, point in enumerate(points)}
    for here in places:
        # smaller ones upon larger ones, so that none is hidden
        for ring, point in enumerate(here):
            radius = max(6.5 - 2 * ring, 1)
            fill = color(numbers[point])
            page.circle(axes.x(point.x), axes.y(point.y), radius, fill=fill, stroke="#ffffff", hint=point.hint)
    return page


def _same_place(points: Sequence[Point], axes: Axes) -> list[list[Point]]:
    """The points by where they are on the page, the highest first."""
    places: dict[tuple[int, int], list[Point]] = {}
    for point in sorted(points, key=lambda point: -point.y):
        places.setdefault((round(axes.x(point.x) / 3), round(axes.y(point.y) / 3)), []).append(point)
    return list(places.values())


def _names(points: Sequence[Point]) -> str:
    return ", ".join(point.name for point in points)


def _label_places(
    places: Sequence[Sequence[Point]], axes: Axes, taken: list[tuple[float, float, float]]
) -> list[tuple[float, float]]:
    """Where each label begins: beside its point, on the side with room, as near in height as no other touches it.

    ``taken``: begin, end and height of texts that are there already.
    """
    found: list[tuple[float, float]] = []
    for here in places:
        size, x = text_width(_names(here), LABEL), axes.x(here[0].x)
        start = x + 13 if x + 13 + size <= axes.right else x - 13 - size
        level = min(axes.y(here[0].y), axes.bottom - 10)

        def touches(y: float, start: float = start, end: float = start + size) -> bool:
            return any(abs(y - other) < LINE and start < right and left < end for left, right, other in taken)

        y = next(level + away for step in count() for away in (step, -step) if not touches(level + away))
        taken.append((start, start + size, y))
        found.append((start, y))
    return found


def bars(
    panels: Mapping[str, Mapping[int, float]],
    *,
    title: str,
    x_label: str,
    columns: int = 4,
    width: float = 720,
    panel_height: float = 140,
) -> Picture:
    """One small panel of bars per name, all with the same axes: number → share of the whole."""
    rows = -(-len(panels) // columns)
    page = Picture(width, 34 + rows * panel_height, title=title)
    page.text(0, 18, title, size=16, bold=True)
    last = max((value for panel in panels.values() for value in panel), default=0)
    highest = max((share for panel in panels.values() for share in panel.values()), default=1) or 1
    gap = 24
    panel_width = (width - gap * (columns - 1)) / columns
    step = panel_width / (last + 1)
    every = max(1, round(26 / step))
    for number, (name, shares) in enumerate(panels.items()):
        left = number % columns * (panel_width + gap)
        top = 34 + number // columns * panel_height
        base = top + panel_height - 44
        page.text(left, top + 12, name, size=11, bold=True)
        page.line(left, base, left + panel_width, base, stroke=FAINT)
        for value, share in shares.items():
            high = share / highest * (panel_height - 76)
            page.rect(
                left + value * step + step * 0.1,
                base - high,
                step * 0.8,
                high,
                fill=color(number),
                hint=f"{share:.1%}: {tick_label(value)}",
            )
            if share == max(shares.values()):
                page.text(left + (value + 0.5) * step, base - high - 4, f"{share:.0%}", size=11, anchor="middle")
        for value in range(0, last + 1, every):
            page.text(left + (value + 0.5) * step, base + 14, str(value), size=11, anchor="middle", fill=MUTED)
        if number // columns == rows - 1 or number + columns >= len(panels):
            page.text(left + panel_width / 2, base + 30, x_label, size=11, anchor="middle", fill=INK)
    return page
