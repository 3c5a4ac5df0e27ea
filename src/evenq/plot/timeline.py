"""Pictures along time: lines, and strips that show who had what and when. Times are milliseconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenq.model import from_millis
from evenq.plot.axes import Scale, round_ticks
from evenq.plot.loads import calm, short
from evenq.plot.svg import FAINT, GRID, MUTED, Picture, text_width

__all__ = ["lines", "strips", "time_ticks"]

_STEPS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 604_800_000,
    2_592_000_000,
)  # fmt: skip


def time_ticks(first: int, last: int, most: int = 6) -> list[tuple[int, str]]:
    """Round times between the two, about so many, as people write them.

    >>> time_ticks(1_700_000_000_000, 1_700_000_060_000, most=2)
    [(1700000010000, '22:13:30'), (1700000040000, '22:14:00')]
    """
    step = next((step for step in _STEPS if (last - first) / step <= most), _STEPS[-1])
    form = "%H:%M:%S.%f" if step < 1000 else "%H:%M:%S" if step < 60_000 else "%H:%M" if step < 86_400_000 else "%b %d"
    times = range(-(-first // step) * step, last + 1, step)
    named = [(at, f"{from_millis(at):{form}}") for at in times]
    return [(at, name[:-3] if step < 1000 else name) for at, name in named]


def lines(
    series: Mapping[str, Sequence[tuple[int, float]]],
    *,
    title: str,
    unit: str,
    width: float = 560,
    height: float = 260,
    filled: bool = False,
) -> Picture:
    """A line for each name, over its points in time. ``filled`` colours what is below."""
    legend = _legend(list(series), width - 58) if len(series) > 1 else []
    top = 14.0 + 22 * (1 + max((row for _, row, _ in legend), default=-1))
    page = Picture(width, height + top, title=title)
    left, bottom = 58.0, height + top - 30
    points = [point for each in series.values() for point in each]
    first, last = min((at for at, _ in points), default=0), max((at for at, _ in points), default=1)
    ticks = round_ticks(0, max([value for _, value in points], default=1) * 1.08 or 1, most=5)
    x, y = Scale(first, max(last, first + 1), left, width - 12), Scale(0, ticks[-1], bottom, top)
    for tick in ticks:
        page.line(left, y(tick), width, y(tick), stroke=GRID)
        page.text(left - 8, y(tick) + 4, short(tick), size=12, anchor="end", fill=MUTED)
    for at, name in time_ticks(first, last, most=int((width - left) / 90)):
        page.line(x(at), bottom, x(at), bottom + 5, stroke=FAINT)
        if x(at) + text_width(name, 11) / 2 <= width:
            page.text(x(at), bottom + 20, name, size=11, anchor="middle", fill=MUTED)
    for number, (name, each) in enumerate(series.items()):
        places = [(x(at), y(value)) for at, value in each]
        if filled and places:
            page.polygon([(places[0][0], bottom), *places, (places[-1][0], bottom)], fill=calm(number), opacity=0.22)
        page.path(
            places,
            stroke=calm(number),
            width=2,
            hint=f"{name}: at most {max([value for _, value in each], default=0):,.0f} {unit}",
        )
    page.line(left, bottom, width, bottom, stroke=FAINT)
    for begin, row, name in legend:
        page.rect(left + begin, 4 + 22 * row, 12, 12, fill=calm(list(series).index(name)), radius=2)
        page.text(left + begin + 18, 14 + 22 * row, name, size=12)
    return page


def strips(
    rows: Mapping[str, Sequence[tuple[int, int, str]]], *, title: str, width: float = 1160, who: Sequence[str] = ()
) -> Picture:
    """A strip for each row, in pieces of time from, to and the one who had it; ``who`` gives everybody a colour."""
    everybody = list(dict.fromkeys([*who, *(name for pieces in rows.values() for _, _, name in pieces)]))
    legend = _legend(everybody, width)
    line = 24.0
    head = 22.0 * (1 + max((row for _, row, _ in legend), default=-1)) + 10
    label = max([text_width(name, 12) for name in rows], default=0) + 14
    page = Picture(width, head + len(rows) * line + 34, title=title)
    pieces = [piece for each in rows.values() for piece in each]
    first, last = min((piece[0] for piece in pieces), default=0), max((piece[1] for piece in pieces), default=1)
    x = Scale(first, max(last, first + 1), label, width - 12)
    for begin, row, name in legend:
        page.rect(begin, 4 + 22 * row, 12, 12, fill=calm(everybody.index(name)), radius=2)
        page.text(begin + 18, 14 + 22 * row, name, size=12)
    for number, (name, each) in enumerate(rows.items()):
        top = head + number * line
        page.text(label - 10, top + 15, name, size=12, anchor="end")
        page.rect(label, top + 2, width - 12 - label, line - 6, fill=GRID, radius=2)
        for begins, ends, holder in each:
            fill = calm(everybody.index(holder))
            page.rect(x(begins), top + 2, max(1.0, x(ends) - x(begins)), line - 6, fill=fill, hint=f"{name}: {holder}")
    bottom = head + len(rows) * line
    for at, name in time_ticks(first, last, most=int((width - label) / 90)):
        page.line(x(at), bottom, x(at), bottom + 5, stroke=FAINT)
        if x(at) + text_width(name, 11) / 2 <= width:
            page.text(x(at), bottom + 20, name, size=11, anchor="middle", fill=MUTED)
    return page


def _legend(names: Sequence[str], width: float) -> list[tuple[float, int, str]]:
    """Where each name stands: how far to the right, and in which line."""
    found: list[tuple[float, int, str]] = []
    at, row = 0.0, 0
    for name in names:
        size = 18 + text_width(name, 12) + 20
        if at and at + size > width:
            at, row = 0.0, row + 1
        found.append((at, row, name))
        at += size
    return found
