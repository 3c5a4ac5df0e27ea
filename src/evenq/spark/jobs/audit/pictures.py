"""What an audit found, as pictures. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from evenq.plot.loads import Load, columns, ladder, ranked
from evenq.plot.svg import FAINT, GRID, INK, MUTED, Picture
from evenq.plot.timeline import lines, strips
from evenq.spark.jobs.audit.findings import GroupAudit, Holding, TopicAudit
from evenq.spark.jobs.audit.measures import EVEN, Percentiles

__all__ = ["by_key", "by_queue", "durations", "holders", "inline", "lag", "over_time"]

# Keys in the picture of the largest.
KEYS = 10
# Brokers with a line of their own.
LINES = 8

# What a page can repaint, for light and for dark.
_VARIABLES = {INK: "ink", MUTED: "muted", FAINT: "faint", GRID: "grid", "#ffffff": "paper"}


def inline(picture: Picture) -> str:
    """A picture for a page: it takes the page's colours and width."""
    text = str(picture).replace('<rect width="100%" height="100%" fill="#ffffff"/>\n', "")
    for value, name in _VARIABLES.items():
        text = text.replace(f'="{value}"', f'="var(--{name})"')
    size = f'width="{picture.width:g}" height="{picture.height:g}" '
    return text.replace(size, "", 1)


def by_queue(topic: TopicAudit) -> Picture:
    """The load of each queue; far above the mean is in the colour of alarm, where luck does not explain it."""
    limit = EVEN * topic.queue_skew.mean
    loads = [
        Load(str(queue.queue_id), queue.broker, queue.messages, queue.messages >= limit and not topic.queue_skew.even)
        for queue in topic.queues
    ]
    return columns(loads, title="Messages by queue", unit="messages")


def over_time(topic: TopicAudit) -> Picture:
    """Messages a second that the brokers stored."""
    brokers = [broker.broker for broker in topic.brokers][:LINES]
    slots = sorted({slot.at for slot in topic.slots})
    counts: dict[tuple[str, int], int] = {}
    for slot in topic.slots:
        name = slot.broker if slot.broker in brokers else "others"
        counts[name, slot.at] = counts.get((name, slot.at), 0) + slot.messages
    names = [*brokers, *(["others"] if len(topic.brokers) > LINES else [])]
    every = range(slots[0], slots[-1] + 1, topic.slot_ms) if slots else ()
    seconds = topic.slot_ms / 1000
    series = {name: [(at, counts.get((name, at), 0) / seconds) for at in every] for name in names}
    return lines(series, title="Messages stored a second", unit="a second", filled=len(names) == 1)


def by_key(topic: TopicAudit) -> Picture:
    """The keys with the most messages."""
    largest = topic.keys[:KEYS]
    return ranked(
        {key.key: key.messages for key in largest},
        title="Largest keys",
        unit="messages",
        alarming=frozenset(key.key for key in largest if key.hot),
    )


def durations(rows: dict[str, Percentiles | None]) -> Picture | None:
    """How long things took, None where nothing is known."""
    known = {
        name: {"p50": found.p50, "p90": found.p90, "p99": found.p99, "p99.9": found.p999, "max": found.most}
        for name, found in rows.items()
        if found is not None
    }
    return ladder(known, title="How long it took") if known else None


def lag(group: GroupAudit) -> Picture | None:
    """Messages that wait for the group: by the trace where that is on, else by the looks at its offsets."""
    if group.lag:
        return lines(
            {"waiting": [(point.at, point.waiting) for point in group.lag]},
            title="Messages that wait",
            unit="messages",
            filled=True,
        )
    looks: dict[int, int] = {}
    for sample in group.samples:
        looks[sample.at] = looks.get(sample.at, 0) + sample.lag
    if len(looks) < 2:
        return None
    return lines({"waiting": sorted(looks.items())}, title="Messages that wait", unit="messages", filled=True)


def holders(group: GroupAudit) -> Picture | None:
    """Who consumed which queue, and when."""
    if not group.holdings:
        return None
    several = len({one.topic for one in group.holdings}) > 1
    rows: dict[str, list[Holding]] = {}
    for one in group.holdings:
        name = f"{one.topic} {one.broker}:{one.queue_id}" if several else f"{one.broker}:{one.queue_id}"
        rows.setdefault(name, []).append(one)
    pieces = {name: _pieces(each, group.slot_ms) for name, each in rows.items()}
    return strips(pieces, title="Who consumed which queue", who=[one.consumer for one in group.consumers])


def _pieces(holdings: Sequence[Holding], width: int) -> list[tuple[int, int, str]]:
    """Slots of the same consumer that follow each other are one piece."""
    found: list[tuple[int, int, str]] = []
    for one in holdings:
        if found and found[-1][2] == one.consumer and found[-1][1] >= one.at - width:
            found[-1] = (found[-1][0], one.at + width, one.consumer)
        else:
            found.append((one.at, one.at + width, one.consumer))
    return found
