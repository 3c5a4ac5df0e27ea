"""Pictures of a what-if over groups of many sizes: what strategies do to small and large ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise

from evenq.balance.groups_result import GroupsResult
from evenq.balance.groups_sizes import Shape
from evenq.plot.axes import Axes, round_ticks
from evenq.plot.svg import FONT, GOOD_INK, INK, Picture, color, text_width

__all__ = ["lines", "page_of", "picture_by_size"]

WIDTH, HEIGHT = 860, 380
# between two labels at the ends of lines
LINE = 16

Series = Mapping[str, Sequence[tuple[float, float]]]


def picture_by_size(by_shape: Mapping[Shape, Sequence[GroupsResult]]) -> list[Picture]:
    """Movement by members and by queues, where groups differ in them, and the fullest member in all groups."""
    found = []
    for noun, key in (("members", _members), ("queues", _queues)):
        if len({key(shape) for shape in by_shape}) > 1:
            found.append(
                lines(
                    _moves(by_shape, key),
                    title=f"Queues moved, by {noun} of the group",
                    x_label=f"{noun} of the group before the change",
                    y_label="× the least possible",
                    ideal=1,
                )
            )
    everything = GroupsResult.total(result for results in by_shape.values() for result in results)
    found.append(
        lines(
            {result.strategy: _shares(result) for result in everything},
            title="The fullest member",
            x_label="its load as a multiple of its group's mean, at most",
            y_label="share of groups, %",
        )
    )
    return found


def _members(shape: Shape) -> int:
    return shape.members


def _queues(shape: Shape) -> int:
    return shape.queues


def _moves(by_shape: Mapping[Shape, Sequence[GroupsResult]], key: Callable[[Shape], int]) -> Series:
    """Strategy → moves as a multiple of the least, by size; sizes at which nothing had to move are left out."""
    sums: dict[str, dict[int, GroupsResult]] = {}
    for shape, results in by_shape.items():
        for result in results:
            sizes = sums.setdefault(result.strategy, {})
            sizes.setdefault(key(shape), GroupsResult(result.strategy)).add(result)
    return {
        name: [(size, result.moved / result.least) for size, result in sorted(sizes.items()) if result.least]
        for name, sizes in sums.items()
    }


def _shares(result: GroupsResult) -> list[tuple[float, float]]:
    """Fullness → percent of the groups that have no more, as steps."""
    points, groups = [(1.0, 0.0)], 0
    for percent, count in sorted(result.fullness.items()):
        points.append((percent / 100, 100 * groups / result.groups))
        groups += count
        points.append((percent / 100, 100 * groups / result.groups))
    return points


def lines(
    series: Series, *, title: str, x_label: str, y_label: str, ideal: float | None = None, width: float = WIDTH
) -> Picture:
    """A line for each name, with the name at its end. ``ideal``: the value that is as good as can be."""
    page = Picture(width, HEIGHT, title=title)
    page.text(0, 18, title, size=16, bold=True)
    drawn = {name: points for name, points in series.items() if points}
    xs = [x for points in drawn.values() for x, _ in points] or [0, 1]
    ys = [y for points in drawn.values() for _, y in points] or [0, 1]
    names = max((text_width(name, 12) for name in drawn), default=0) + 20
    axes = Axes(
        page,
        66,
        40,
        width - 66 - names,
        HEIGHT - 40 - 56,
        x_ticks=round_ticks(min(xs), max(max(xs), min(xs) + 1e-6), most=8),
        y_ticks=round_ticks(0, max(*ys, ideal or 0)),
    )
    axes.draw(x_label, y_label)
    if ideal is not None:
        page.line(axes.left, axes.y(ideal), axes.right, axes.y(ideal), stroke=GOOD_INK, width=1.5, dash="5 4")
    for number, points in enumerate(drawn.values()):
        for (x1, y1), (x2, y2) in pairwise(points):
            page.line(axes.x(x1), axes.y(y1), axes.x(x2), axes.y(y2), stroke=color(number), width=2)
        if len(points) == 1:
            page.circle(axes.x(points[0][0]), axes.y(points[0][1]), 3, fill=color(number), stroke="#ffffff")
    _names(page, axes, drawn)
    return page


def _names(page: Picture, axes: Axes, drawn: Series) -> None:
    """At the right, each beside its line's end, as near as no other touches it, with the line's colour before it."""
    ends = sorted((axes.y(points[-1][1]), number, name) for number, (name, points) in enumerate(drawn.items()))
    lowest = axes.bottom - LINE * (len(ends) - 1)
    level = axes.top - LINE
    for place, (y, number, name) in enumerate(ends):
        level = max(level + LINE, min(y, lowest + place * LINE))
        page.rect(axes.right + 4, level - 4, 8, 8, fill=color(number), radius=2)
        page.text(axes.right + 16, level + 4, name, size=12, fill=INK)


def page_of(title: str, pictures: Sequence[Picture]) -> str:
    """One page that needs nothing else. The pictures say all that there is to say."""
    body = "\n".join(f"<figure>{picture}</figure>" for picture in pictures)
    style = (
        f"body{{font-family:{FONT};color:{INK};max-width:960px;margin:2rem auto;padding:0 1rem;line-height:1.5}}"
        "figure{margin:2rem 0}svg{max-width:100%;height:auto}"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
