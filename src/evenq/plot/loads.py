"""Loads side by side: columns with the mean across them, names with bars behind, and durations on a ladder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from evenq.plot.axes import Scale, round_ticks
from evenq.plot.svg import FAINT, GRID, INK, MUTED, Picture, color, text_width

__all__ = ["Load", "calm", "columns", "ladder", "ranked", "short", "span_text"]

# The fill of what stands out, and the other colours in an order in which none is near it.
ALARM = "#d55e00"
_CALM = (0, 4, 2, 3, 6, 8, 10, 11, 12, 14, 15)


@dataclass(frozen=True, slots=True)
class Load:
    """One of the parts that share something. Those of a ``family`` have one colour and stand together."""

    name: str
    family: str
    value: float
    alarming: bool = False


def calm(number: int) -> str:
    """A colour for the thing of that number which does not look like an alarm."""
    return color(_CALM[number % len(_CALM)])


def short(value: float) -> str:
    """A number in few letters.

    >>> short(1234), short(1_200_000), short(87), short(0.5), short(830.7), short(12_345_678_901)
    ('1,234', '1.2 M', '87', '0.5', '831', '12.3 G')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.3g} {unit}" if scaled < 1000 else f"{scaled:,.0f} {unit}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.2g}"


def columns(loads: Sequence[Load], *, title: str, unit: str, width: float = 560, height: float = 300) -> Picture:
    """A column for each load, families side by side, and a line at the mean: what rises above it has too much."""
    page = Picture(width, height, title=title)
    left, top, bottom = 58.0, 18.0, height - 46
    ticks = round_ticks(0, max([load.value for load in loads], default=1) * 1.08 or 1, most=5)
    y = Scale(0, ticks[-1], bottom, top)
    for tick in ticks:
        page.line(left, y(tick), width, y(tick), stroke=GRID)
        page.text(left - 8, y(tick) + 4, short(tick), size=12, anchor="end", fill=MUTED)
    families = list(dict.fromkeys(load.family for load in loads))
    gap = 14.0 if len(families) > 1 else 0.0
    step = (width - left - gap * max(0, len(families) - 1)) / max(1, len(loads))
    at, begun = left, families[0] if families else ""
    spans: dict[str, tuple[float, float]] = {}
    every = max(1, ceil(max((text_width(load.name, 11) for load in loads), default=1) / step))
    for number, load in enumerate(loads):
        if load.family != begun:
            at, begun = at + gap, load.family
        fill = ALARM if load.alarming else calm(families.index(load.family))
        inset = step * (0.14 if step > 8 else 0.05)
        page.rect(
            at + inset,
            y(load.value),
            step - 2 * inset,
            bottom - y(load.value),
            fill=fill,
            radius=2 if step > 8 else 0,
            hint=f"{load.family} {load.name}: {load.value:,.0f} {unit}",
        )
        if number % every == 0:
            page.text(at + step / 2, bottom + 15, load.name, size=11, anchor="middle", fill=MUTED)
        spans[load.family] = (spans.get(load.family, (at, at))[0], at + step)
        at += step
    page.line(left, bottom, width, bottom, stroke=FAINT)
    for family, (begin, end) in spans.items():
        if text_width(family, 12) <= end - begin + gap:
            page.text((begin + end) / 2, bottom + 35, family, size=12, anchor="middle", fill=INK)
    if loads:
        mean = sum(load.value for load in loads) / len(loads)
        page.line(left, y(mean), width, y(mean), stroke=INK, width=1.5, dash="5 4")
        page.text(width - 4, y(mean) - 6, f"mean {short(mean)}", size=12, anchor="end", halo=True)
    return page


def ranked(
    rows: Mapping[str, float], *, title: str, unit: str, alarming: frozenset[str] = frozenset(), width: float = 560
) -> Picture:
    """Names, largest first, each with a bar as long as its value."""
    line = 26.0
    page = Picture(width, max(1, len(rows)) * line + 8, title=title)
    names = {name: _cut(name, width * 0.34) for name in rows}
    label = max([text_width(text, 12) for text in names.values()], default=0) + 12
    most = max(rows.values(), default=1) or 1
    room = width - label - 70
    for number, (name, value) in enumerate(rows.items()):
        top = 4 + number * line
        page.text(label - 10, top + 16, names[name], size=12, anchor="end")
        fill = ALARM if name in alarming else color(0)
        page.rect(
            label,
            top + 3,
            max(1.5, value / most * room),
            line - 8,
            fill=fill,
            radius=2,
            hint=f"{name}: {value:,.0f} {unit}",
        )
        page.text(label + max(1.5, value / most * room) + 7, top + 16, short(value), size=12, fill=MUTED)
    return page


def _cut(text: str, room: float) -> str:
    while text_width(text, 12) > room and len(text) > 4:
        text = text[:-2].rstrip("…") + "…"
    return text


def span_text(milliseconds: float) -> str:
    """
    >>> span_text(0), span_text(12.4), span_text(1500), span_text(90_000), span_text(7_200_000)
    ('0 ms', '12 ms', '1.5 s', '1.5 min', '2 h')
    """
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.0f} ms"


def ladder(rows: Mapping[str, Mapping[str, float]], *, title: str, width: float = 560) -> Picture:
    """Durations on a scale of powers of ten: for each name a line with its marks, such as p50, p99 and max."""
    line, left, top = 68.0, 10.0, 8.0
    page = Picture(width, top + len(rows) * line + 34, title=title)
    values = [max(1.0, value) for marks in rows.values() for value in marks.values()]
    low, high = floor(log10(min(values, default=1))), max(1, ceil(log10(max(values, default=10))))
    if high == low:
        high += 1
    x = Scale(low, high, left, width - 26)
    bottom = top + len(rows) * line
    for power in range(low, high + 1):
        page.line(x(power), top, x(power), bottom, stroke=GRID)
        name = span_text(10.0**power)
        page.text(max(x(power), text_width(name, 12) / 2), bottom + 18, name, size=12, anchor="middle", fill=MUTED)
    for number, (name, marks) in enumerate(rows.items()):
        y = top + number * line + 38
        places = [(mark, value, x(log10(max(1.0, value)))) for mark, value in marks.items()]
        page.text(left, y - 22, name, size=12, bold=True)
        page.line(left, y, width - 26, y, stroke=GRID, width=2)
        if places:
            page.line(places[0][2], y, places[-1][2], y, stroke=color(0), width=4)
        for at, (mark, value, place) in enumerate(places):
            fill = ALARM if at == len(places) - 1 else calm(0 if at == 0 else 1)
            page.circle(place, y, 5, fill=fill, stroke="#ffffff", hint=f"{mark}: {span_text(value)}")
        taken: list[tuple[float, float]] = []
        # the ends are what people look for; what lies between is named where there is room
        for mark, value, place in [*places[:1], *places[-1:], *reversed(places[1:-1])]:
            text = f"{mark} {span_text(value)}"
            begin = max(0.0, min(place - text_width(text, 11) / 2, width - text_width(text, 11)))
            end = begin + text_width(text, 11)
            if all(end + 6 < other or begin > until + 6 for other, until in taken):
                page.text(begin, y + 20, text, size=11, fill=MUTED)
                taken.append((begin, end))
    return page
