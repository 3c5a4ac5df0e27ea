"""The report of an audit: one page of HTML that needs nothing else. Pure.

What matters comes first: a sentence, what is wrong, a tile for each question; then pictures, then tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from evenq.model import from_millis
from evenq.plot.loads import short, span_text
from evenq.plot.svg import Picture
from evenq.spark.jobs.audit.findings import Audit, GroupAudit, Kind, TopicAudit
from evenq.spark.jobs.audit.judging import count, verdict
from evenq.spark.jobs.audit.measures import Percentiles, Skew
from evenq.spark.jobs.audit.pictures import by_key, by_queue, durations, holders, inline, lag, over_time
from evenq.spark.jobs.audit.style import STYLE

__all__ = ["page"]

# Rows of a table in the page; the Parquet tables have more.
ROWS = 200

_TERMS = {
    "missing": "an offset that the queue has counted holds no message, or none that can be unpacked.",
    "duplicate": "a message has the unique key of one that was stored before it; the first one is no duplicate.",
    "out of order": "in a queue, a message was born before the one of the same key in front of it. It is looked at "
    "where order is meant: messages with a sharding key, and topics whose keys keep to one queue each. Duplicates, "
    "delayed messages and transactions do not count.",
    "hot key": "a key with at least ten times the messages of the mean key and half of those of the mean queue.",
    "uneven": "the fullest queue has 1.25 times the mean or more, chance is ruled out (chi-square, p < 0.001), and hot "
    "keys alone do not explain it.",
    "latencies": "are counted in steps of 5% (1 ms below 64 ms). Clocks of different machines may differ.",
}


def page(audit: Audit) -> str:
    """The whole page."""
    names = ", ".join(topic.topic for topic in audit.topics) or "nothing"
    body = [
        f"<header><h1><span class='mark'>evenq</span> audit of {escape(names)}</h1>"
        f"<div class='about'>{_moment(audit.at)} UTC</div></header>",
        _verdict(audit),
        _tiles(audit),
        *(part for topic in audit.topics for part in _topic(topic)),
        *(part for group in audit.groups for part in _group(group)),
        _footer(audit),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>evenq audit: {escape(names)}</title>",
            f"<style>{STYLE}</style></head><body><main>",
            *body,
            "</main></body></html>",
            "",
        ]
    )


def _verdict(audit: Audit) -> str:
    several = len(audit.topics) > 1
    items = "".join(
        f"<li><b>{escape(finding.kind.value)}</b><span>{escape(f'{finding.topic}: ' if several else '')}"
        f"{escape(finding.words)}</span></li>"
        for finding in audit.findings
    )
    listed = f"<ul>{items}</ul>" if items else ""
    mark = "" if audit.clean else " bad"
    return f"<section class='card verdict{mark}'><p>{escape(verdict(audit.topics))}</p>{listed}</section>"


def _tiles(audit: Audit) -> str:
    topics = audit.topics
    kinds = {finding.kind for finding in audit.findings}
    looked = [topic for topic in topics if topic.order.name != "NONE"]
    peak = max((topic.queue_skew.peak for topic in topics), default=1.0)
    hot = sum(key.hot for topic in topics for key in topic.keys)
    tiles = [
        _tile("Messages", short(audit.messages), f"{_bytes(sum(topic.bytes for topic in topics))} of bodies", None),
        _tile("Missing", f"{sum(topic.missing for topic in topics):,}", "offsets without a message", Kind.GAP in kinds),
        _tile("Twice", f"{sum(topic.copies_count for topic in topics):,}", "by unique key", Kind.DUPLICATE in kinds),
        _tile(
            "Out of order",
            f"{sum(topic.late_count for topic in topics):,}" if looked else "–",
            (looked or topics)[0].order.value if topics else "",
            (Kind.LATE in kinds or Kind.SPREAD in kinds) if looked else None,
        ),
        _tile("Fullest queue", f"{peak:.2f} ×", "the mean queue", Kind.UNEVEN in kinds or Kind.HOT_KEY in kinds),
        _tile("Hot keys", f"{hot:,}", f"of {short(sum(topic.key_skew.parts for topic in topics))} keys", hot > 0),
    ]
    if audit.groups:
        worst = max(audit.groups, key=lambda group: group.behind)
        tiles.append(_tile("Lag", short(worst.behind), f"group {worst.group}", None))
    return f"<section class='tiles'>{''.join(tiles)}</section>"


def _tile(name: str, value: str, more: str, wrong: bool | None) -> str:
    state = "" if wrong is None else f"<span class='state'>{'look' if wrong else 'good'}</span>"
    return (
        f"<div class='card tile{' bad' if wrong else ''}'><div class='name'>{escape(name)}{state}</div>"
        f"<div class='value'>{escape(value)}</div><div class='more'>{escape(more)}</div></div>"
    )


def _topic(topic: TopicAudit) -> Iterable[str]:
    yield (
        f"<h2>{escape(topic.topic)}<small>{count(topic.messages, 'message')} in {count(len(topic.queues), 'queue')} of "
        f"{count(len(topic.brokers), 'broker')} · {_bytes(topic.bytes)}</small></h2>"
    )
    cards = [
        _card("Messages by queue", _skew_words(topic.queue_skew), by_queue(topic)),
        _card("Messages stored a second", f"in steps of {span_text(topic.slot_ms)}", over_time(topic)),
        _card("Largest keys", _key_words(topic), by_key(topic) if topic.keys else None),
        _card(
            "From born to stored",
            _percentile_words(topic.stored_after),
            durations({"born → stored": topic.stored_after}),
        ),
    ]
    yield f"<section class='grid'>{''.join(cards)}</section>"
    yield from _topic_tables(topic)


def _topic_tables(topic: TopicAudit) -> Iterable[str]:
    yield _table(
        "Out of order",
        ["key", "broker", "queue", "offset", "born", "behind one born", "late by"],
        [
            (
                late.key,
                late.broker,
                late.queue_id,
                late.offset,
                _moment(late.born),
                _moment(late.behind),
                span_text(late.behind - late.born),
            )
            for late in topic.late
        ],
        total=topic.late_count,
        opened=True,
    )
    yield _table(
        "Duplicates",
        ["unique key", "key", "broker", "queue", "offset", "stored", "the first is at"],
        [
            (
                copy.unique_key,
                copy.key or "–",
                copy.broker,
                copy.queue_id,
                copy.offset,
                _moment(copy.stored),
                copy.first,
            )
            for copy in topic.copies
        ],
        total=topic.copies_count,
        opened=True,
    )
    yield _table(
        "Missing",
        ["broker", "queue", "from offset", "to offset", "messages"],
        [(gap.broker, gap.queue_id, gap.first, gap.end - 1, gap.messages) for gap in topic.gaps],
        opened=True,
    )
    yield _table(
        "Keys in several queues",
        ["key", "messages", "queues"],
        [(one.key, one.messages, one.queues) for one in topic.spread],
        total=topic.spread_count,
        opened=True,
    )
    mean = topic.queue_skew.mean or 1
    yield _table(
        "Queues",
        ["broker", "queue", "messages", "of the mean", "bytes", "first offset", "end offset"],
        [
            (
                queue.broker,
                queue.queue_id,
                queue.messages,
                f"{queue.messages / mean:.3f}",
                queue.bytes,
                queue.first,
                queue.end,
            )
            for queue in topic.queues
        ],
    )
    yield _table(
        "Brokers",
        ["broker", "queues", "messages", "bytes"],
        [(broker.broker, broker.queues, broker.messages, broker.bytes) for broker in topic.brokers],
    )
    yield _table(
        "Keys",
        ["key", "messages", "share", "bytes", "queues", "fullest"],
        [
            (
                key.key,
                key.messages,
                f"{key.messages / max(1, topic.messages):.2%}",
                key.bytes,
                len(key.queues),
                key.queues[0][0],
            )
            for key in topic.keys
        ],
        alarms=[key.hot for key in topic.keys],
        total=topic.key_skew.parts,
    )


def _group(group: GroupAudit) -> Iterable[str]:
    said = [f"{count(group.behind, 'message')} behind"]
    if group.consumers:
        said.append(count(len(group.consumers), "consumer"))
        said.append(f"{count(group.moves_count, 'change')} of hands")
    if group.again:
        said.append(f"{count(group.again, 'message')} handed out again")
    yield f"<h2>group {escape(group.group)}<small>{' · '.join(said)}</small></h2>"
    waits = lag(group)
    took = durations(
        {
            "stored → consumed": group.consumed_after,
            "born → consumed": group.whole_way,
            "in the consumer's hands": group.handling,
        }
    )
    held = holders(group)
    cards = []
    if waits is not None:
        cards.append(_card("Messages that wait", "by the trace" if group.lag else "by the group's offsets", waits))
    if took is not None:
        cards.append(_card("Latency", _percentile_words(group.consumed_after), took))
    if held is not None:
        cards.append(_card("Who consumed which queue", f"in steps of {span_text(group.slot_ms)}", held, wide=True))
    if cards:
        yield f"<section class='grid'>{''.join(cards)}</section>"
    else:
        yield "<p class='note'>No trace of this group, so its offsets are all that is known.</p>"
    total = sum(one.messages for one in group.consumers) or 1
    yield _table(
        "Consumers",
        ["consumer", "messages", "share", "bytes", "queues"],
        [(one.consumer, one.messages, f"{one.messages / total:.1%}", one.bytes, one.queues) for one in group.consumers],
        opened=True,
    )
    yield _table(
        "Queues that changed hands",
        ["when", "topic", "broker", "queue", "offset", "from", "to"],
        [
            (_moment(one.at), one.topic, one.broker, one.queue_id, one.offset, one.before, one.after)
            for one in group.moves
        ],
        total=group.moves_count,
    )
    yield _table(
        "Offsets",
        ["topic", "broker", "queue", "committed", "end", "lag"],
        [(one.topic, one.broker, one.queue_id, one.committed, one.end, one.lag) for one in group.latest],
    )


def _card(title: str, more: str, picture: Picture | None, *, wide: bool = False) -> str:
    shown = inline(picture) if picture is not None else "<p class='note'>Nothing to show.</p>"
    return (
        f"<div class='card{' wide' if wide else ''}'><h3>{escape(title)}<small>{escape(more)}</small></h3>{shown}</div>"
    )


def _table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    total: int | None = None,
    opened: bool = False,
    alarms: Sequence[bool] = (),
) -> str:
    """A table that can be folded; nothing where it has no rows."""
    if not rows:
        return ""
    shown = rows[:ROWS]
    numeric = [isinstance(value, int) or _looks_numeric(value) for value in shown[0]]
    head = "".join(
        f"<th{' class=number' if right else ''}>{escape(name)}</th>" for name, right in zip(heads, numeric, strict=True)
    )
    lines = []
    for number, row in enumerate(shown):
        cells = "".join(
            f"<td class={'number' if right else 'text'}>{escape(_cell(value))}</td>"
            for value, right in zip(row, numeric, strict=True)
        )
        lines.append(f"<tr{' class=alarm' if number < len(alarms) and alarms[number] else ''}>{cells}</tr>")
    whole = len(rows) if total is None else total
    many = f"{len(shown):,} of {whole:,}" if whole > len(shown) else f"{whole:,}"
    return (
        f"<details class='card'{' open' if opened else ''}><summary>{escape(title)}<small>{many}</small></summary>"
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        "</details>"
    )


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _looks_numeric(value: object) -> bool:
    return isinstance(value, str) and value.rstrip("%").replace(".", "", 1).isdigit()


def _footer(audit: Audit) -> str:
    terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(words)}</dd>" for term, words in _TERMS.items())
    trace = "" if audit.traced else " The message trace is off, so consumers are known by their offsets only."
    words = f"Times are UTC. All of this is in Parquet files in <code>tables</code>.{trace}"
    return f"<footer>{words}<dl>{terms}</dl></footer>"


def _skew_words(found: Skew) -> str:
    said = "even" if found.even else "uneven"
    chance = f"χ² {short(round(found.chi_square, 1))} (p {_p(found.p)})"
    return f"{said}: fullest {found.peak:.2f} × the mean, Gini {found.gini:.3f}, {chance}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def _key_words(topic: TopicAudit) -> str:
    if not topic.key_skew.parts:
        return "no message has a key"
    said = f"{count(topic.key_skew.parts, 'key')}, Gini {topic.key_skew.gini:.2f}"
    return said + (f", {count(topic.keyless, 'message')} without" if topic.keyless else "")


def _percentile_words(found: Percentiles | None) -> str:
    return "" if found is None else f"half within {span_text(found.p50)}, 99% within {span_text(found.p99)}"


def _bytes(size: int) -> str:
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:,} bytes"


def _moment(milliseconds: int) -> str:
    return f"{from_millis(milliseconds):%Y-%m-%d %H:%M:%S.%f}"[:-3]
