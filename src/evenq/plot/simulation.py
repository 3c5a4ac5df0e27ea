"""Pictures of a simulation: who holds what, before and after, and movement against evenness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from evenq.balance.measures import Assignment, holders
from evenq.balance.simulation import Run
from evenq.model import MessageQueue
from evenq.plot.charts import Point, bars, scatter
from evenq.plot.svg import FAINT, INK, MUTED, Picture, color, ink_on, text_width, wrap

if TYPE_CHECKING:
    from evenq.balance.groups import GroupsResult

__all__ = ["holdings", "picture_of_groups", "picture_of_runs"]

MARGIN = 32
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ROW, ROW_GAP = 22, 6


def picture_of_runs(runs: Sequence[Run], title: str, subtitle: str = "") -> Picture:
    """One picture with both panels."""
    return _page(title, subtitle, [holdings(runs), movement(runs)])


def picture_of_groups(results: Sequence[GroupsResult], title: str, subtitle: str = "") -> Picture:
    """Movement against evenness over many groups, and how many queues their members have."""
    points = [
        Point(
            result.strategy,
            result.mean_spread,
            result.moved / result.groups,
            f"{result.strategy}: {result.moved / result.groups:.2f} moved, spread {result.mean_spread:.2f}, on average",
        )
        for result in results
    ]
    least = results[0].least / results[0].groups
    panels = {
        result.strategy: {load: members / sum(result.loads.values()) for load, members in sorted(result.loads.items())}
        for result in results
    }
    charts = [
        _scatter(points, least, "queues between the fullest and the emptiest member, mean", "queues moved, mean"),
        bars(panels, title="Queues of a member after the change", x_label="queues", width=860),
    ]
    return _page(title, subtitle, charts)


def movement(runs: Sequence[Run]) -> Picture:
    """Movement against evenness, one point per strategy."""
    points = [
        Point(
            f"{run.strategy} ({run.unheld} queues unheld)" if run.unheld else run.strategy,
            run.spread,
            run.moved,
            f"{run.strategy}: {run.moved} moved, spread {run.spread}",
        )
        for run in runs
    ]
    return _scatter(
        points, runs[0].least, "queues between the fullest and the emptiest member, at worst", "queues moved, in all"
    )


def _scatter(points: Sequence[Point], least: float, x_label: str, y_label: str) -> Picture:
    return scatter(
        points,
        title="Movement against evenness",
        x_label=x_label,
        y_label=y_label,
        ideal=(1, least),
        ideal_label=f"least: {least:.4g}",
        width=860,
    )


def _page(title: str, subtitle: str, panels: Sequence[Picture]) -> Picture:
    width = max(panel.width for panel in panels)
    lines = wrap(subtitle, 13, width) if subtitle else []
    top = 70.0 + 18 * len(lines)
    page = Picture(
        width + 2 * MARGIN,
        top + sum(panel.height + 28 for panel in panels),
        title=title,
        description=subtitle,
    )
    page.text(MARGIN, 44, title, size=20, bold=True)
    for number, line in enumerate(lines):
        page.text(MARGIN, 66 + 18 * number, line, fill=MUTED)
    for panel in panels:
        page.place(panel, MARGIN, top)
        top += panel.height + 28
    return page


def holdings(runs: Sequence[Run], width: float = 860) -> Picture:
    """A block per strategy, a column per queue, a row per event; the colour is the holder, a mark means: moved."""
    letters = _letters(runs)
    queues = runs[0].steps[0].queues if runs[0].steps else sorted(holders(runs[0].start))
    columns = 2 if len(queues) <= 24 and len(runs) > 1 else 1
    gap = 40
    block_width = (width - gap * (columns - 1)) / columns
    blocks = [_block(run, queues, letters, block_width) for run in runs]
    legend = _legend(letters, width)
    rows = [blocks[at : at + columns] for at in range(0, len(blocks), columns)]
    page = Picture(
        width,
        34 + legend.height + sum(row[0].height for row in rows),
        title="Who holds what, before and after",
    )
    page.text(0, 18, page.title, size=16, bold=True)
    page.place(legend, 0, 34)
    top = 34.0 + legend.height
    for row in rows:
        for number, block in enumerate(row):
            page.place(block, number * (block_width + gap), top)
        top += row[0].height
    return page


def _letters(runs: Sequence[Run]) -> dict[str, str]:
    """Everybody who is ever there gets a letter, in the order in which they come."""
    everybody = [*runs[0].start, *(member for step in runs[0].steps for member in step.joined)]
    return {member: _letter(number) for number, member in enumerate(dict.fromkeys(everybody))}


def _letter(number: int) -> str:
    """A, …, Z, AA, …, ZZ, AAA and so on."""
    return (_letter(number // 26 - 1) if number >= 26 else "") + LETTERS[number % 26]


def _block(run: Run, queues: Sequence[MessageQueue], letters: Mapping[str, str], width: float) -> Picture:
    events = run.by_event()
    label_width, count_width = 62, 44
    top = 62
    page = Picture(width, top + (len(events) + 1) * (ROW + ROW_GAP) + 18, title=run.strategy)
    page.text(0, 14, run.strategy, size=14, bold=True)
    said = f"moved {run.moved}, least {run.least} · spread at most {run.spread}"
    if run.unheld:
        said += f" · up to {run.unheld} unheld"
    page.text(0, 32, said, size=12, fill=MUTED)
    places = _columns(queues, label_width, width - label_width - count_width)
    _broker_names(page, queues, places, top - 8)
    _row(page, "start", run.start, frozenset(), places, letters, top)
    for number, (event, steps) in enumerate(events, start=1):
        y = top + number * (ROW + ROW_GAP)
        moved = frozenset(queue for step in steps for queue in step.moved)
        _row(page, event, steps[-1].after, moved, places, letters, y)
        count = sum(len(step.moved) for step in steps)
        page.text(width, y + 15, str(count), size=12, anchor="end")
    page.text(width, top - 8, "moved", size=11, anchor="end", fill=MUTED)
    return page


def _columns(queues: Sequence[MessageQueue], left: float, width: float) -> dict[MessageQueue, tuple[float, float]]:
    """Queue → left edge and width of its column, with a gap between brokers."""
    brokers = [list(group) for _, group in groupby(queues, key=lambda queue: (queue.topic, queue.broker))]
    gap = min(8.0, width * 0.2 / max(1, len(brokers)))
    cell = min(30.0, (width - gap * (len(brokers) - 1)) / len(queues))
    places = {}
    for group in brokers:
        for queue in group:
            places[queue] = (left, cell)
            left += cell
        left += gap
    return places


def _broker_names(
    page: Picture, queues: Sequence[MessageQueue], places: Mapping[MessageQueue, tuple[float, float]], y: float
) -> None:
    """Above the first queue of each broker, as much of the name as there is room for."""
    several = len({queue.topic for queue in queues}) > 1
    for (topic, broker), group in groupby(queues, key=lambda queue: (queue.topic, queue.broker)):
        columns = [places[queue] for queue in group]
        room = columns[-1][0] + columns[-1][1] - columns[0][0]
        names = [broker, broker.rpartition("@")[2], broker[-1:]]
        for name in [*(f"{topic} {name}" for name in names if several), *names]:
            if text_width(name, 11) <= room:
                page.text(columns[0][0], y, name, size=11, fill=MUTED)
                break


def _row(
    page: Picture,
    label: str,
    shares: Assignment,
    moved: frozenset[MessageQueue],
    places: Mapping[MessageQueue, tuple[float, float]],
    letters: Mapping[str, str],
    y: float,
) -> None:
    page.text(0, y + 15, label, size=12, fill=INK)
    held_by = holders(shares)
    numbers = {member: number for number, member in enumerate(letters)}
    for queue, (x, cell) in places.items():
        member = held_by.get(queue)
        inset = 0.75 if cell > 6 else 0.25
        box = (x + inset, y, cell - 2 * inset, ROW)
        if member is None:
            page.rect(*box, stroke=FAINT, dash="2 2", hint=f"{queue}: nobody")
            continue
        fill = color(numbers[member])
        page.rect(*box, fill=fill, radius=2 if cell > 10 else 0, hint=f"{queue}: {member}")
        if queue in moved:
            page.rect(x + inset, y + ROW + 1, cell - 2 * inset, 3, fill=INK)
        if cell >= 14:
            page.text(
                x + cell / 2,
                y + 15.5,
                letters[member],
                size=12,
                anchor="middle",
                bold=queue in moved,
                fill=ink_on(fill),
            )


def _legend(letters: Mapping[str, str], width: float) -> Picture:
    """Who is which colour, and what the mark means, in as many lines as it takes."""
    items = [(letter, color(number), member) for number, (member, letter) in enumerate(letters.items())]
    placed, x, y = [], 0.0, 0.0
    for item in items:
        size = 22 + text_width(item[2], 12) + 18
        if x + size > width:
            x, y = 0.0, y + 24
        placed.append((x, y, *item))
        x += size
    marks = [("moved", INK), ("held by nobody", None)]
    need = sum(26 + text_width(name, 12) + 18 for name, _ in marks)
    if x + need > width:
        x, y = 0.0, y + 24
    page = Picture(width, y + 24 + 18, title="Members")
    for left, top, letter, fill, member in placed:
        page.rect(left, top, 18, 18, fill=fill, radius=2)
        page.text(left + 9, top + 13.5, letter, size=11, anchor="middle", fill=ink_on(fill))
        page.text(left + 23, top + 13.5, member, size=12)
    for name, ink in marks:
        if ink:
            page.rect(x, y + 12, 18, 3, fill=ink)
        else:
            page.rect(x + 0.5, y + 0.5, 17, 17, stroke=FAINT, dash="2 2")
        page.text(x + 23, y + 13.5, name, size=12)
        x += 26 + text_width(name, 12) + 18
    return page
