"""From what was counted to what is wrong, and the words for it. Pure.

*gap*: an offset that was to be read holds no message, or none that can be read.

*duplicate*: a message has the unique key of one that was stored before it.

*out of order*: in one queue, a message was born before the one of the same key in front of it, by the milliseconds that
its producer gave it. That is looked at where order is meant: of messages with a sharding key, and in topics where all
but a few of the keys that come again keep to one queue, as they do with a selector and do not with round robin.
Duplicates do not count, nor what waited at the broker: delayed messages and transactions.

*key in several queues*: of a key whose order is meant, without duplicates.

*hot key*: it has ten times as many messages as the mean key, and half as many as the mean queue or more.

*uneven*: the fullest queue or broker has 1.25 times the mean, chance is ruled out (p < 0.001), and hot keys alone do
not explain it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from evenq.spark.jobs.audit.findings import Finding, Gap, KeyLoad, Kind, Order, QueueLoad, TopicAudit
from evenq.spark.jobs.audit.measures import Skew, skew

__all__ = ["HOT_LEAST", "count", "findings", "hot_floor", "is_hot", "means_order", "verdict"]

# A hot key has so many times the messages of the mean key, such a part of the mean queue's, and at least so many.
HOT_TIMES = 10
HOT_PART = 0.5
HOT_LEAST = 20

# Of the keys that come again, so many keep to one queue where order is meant; fewer keys than that tell nothing.
KEEP = 0.95
TELLING = 20


def means_order(*, sharded: int, again: int, together: int, queues: int, told: bool | None) -> Order:
    """Whether a topic is to be in order. ``again`` keys without sharding key come more than once, ``together`` of them
    in one queue.

    >>> means_order(sharded=0, again=1000, together=260, queues=4, told=None)
    <Order.NONE: 'no order is meant'>
    >>> means_order(sharded=0, again=1000, together=998, queues=4, told=None)
    <Order.KEYED: 'by key: each keeps to a queue'>
    """
    if told is not None:
        return Order.TOLD if told else Order.NONE
    if queues > 1 and again >= TELLING and together >= KEEP * again:
        return Order.KEYED
    return Order.SHARDED if sharded else Order.NONE


def hot_floor(messages: int, queues: int) -> int:
    """The messages that a hot key has at least."""
    return max(HOT_LEAST, round(HOT_PART * messages / max(1, queues)))


def is_hot(key_messages: int, *, mean_key: float, messages: int, queues: int) -> bool:
    """
    >>> is_hot(500, mean_key=2.0, messages=4000, queues=8), is_hot(500, mean_key=400.0, messages=4000, queues=8)
    (True, False)
    """
    return key_messages >= HOT_TIMES * mean_key and key_messages >= hot_floor(messages, queues)


def findings(topic: TopicAudit) -> tuple[Finding, ...]:
    """What is wrong with a topic, the worst first."""
    return tuple(
        finding
        for found in (_gaps(topic), _copies(topic), _late(topic), _spread(topic), _hot(topic), _uneven(topic))
        for finding in found
    )


def count(number: int, one: str, many: str = "") -> str:
    """
    >>> count(1, "queue"), count(1200, "queue"), count(0, "copy", "copies")
    ('1 queue', '1,200 queues', '0 copies')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def verdict(topics: Sequence[TopicAudit]) -> str:
    """One sentence for everything.

    >>> verdict([])
    'There is nothing to audit: no messages.'
    """
    messages = sum(topic.messages for topic in topics)
    wrong = [finding for topic in topics for finding in topic.findings]
    if not messages and not wrong:
        return "There is nothing to audit: no messages."
    if not wrong:
        return f"All is well: {count(messages, 'message')}, none missing, none twice, the load is even."
    names = {
        Kind.GAP: ("message is missing", "messages are missing"),
        Kind.DUPLICATE: ("is there twice", "are there twice"),
        Kind.LATE: ("is out of order", "are out of order"),
        Kind.SPREAD: ("key is in several queues", "keys are in several queues"),
        Kind.HOT_KEY: ("key is hot", "keys are hot"),
        Kind.UNEVEN: ("load is uneven", "loads are uneven"),
    }
    totals = Counter[Kind]()
    for finding in wrong:
        totals[finding.kind] += finding.count
    said = [
        f"{totals[kind]:,} {one if totals[kind] == 1 else many}"
        for kind, (one, many) in names.items()
        if kind in totals
    ]
    return f"Of {count(messages, 'message')}, " + _and(said) + "."


def _and(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _gaps(topic: TopicAudit) -> Iterable[Finding]:
    if not topic.gaps:
        return
    first = topic.gaps[0]
    places = len({(gap.broker, gap.queue_id) for gap in topic.gaps})
    where = f"{_place(first)} at offset {first.first:,}" if len(topic.gaps) == 1 else count(places, "queue")
    yield Finding(
        Kind.GAP,
        topic.topic,
        topic.missing,
        f"{count(topic.missing, 'message')} cannot be read, in {where}: the queue has counted "
        f"{'it' if topic.missing == 1 else 'them'}, and there is nothing, or nothing that can be unpacked",
    )


def _copies(topic: TopicAudit) -> Iterable[Finding]:
    if topic.copies_count:
        yield Finding(
            Kind.DUPLICATE,
            topic.topic,
            topic.copies_count,
            f"{count(topic.copies_count, 'message')} stored again under the unique key of an earlier one, as by a "
            "producer that got no answer and tried again: consumers see both",
        )


def _late(topic: TopicAudit) -> Iterable[Finding]:
    if topic.late_count:
        keys = {late.key for late in topic.late}
        yield Finding(
            Kind.LATE,
            topic.topic,
            topic.late_count,
            f"{count(topic.late_count, 'message')} behind one of the same key that was born later"
            + (f" (key {next(iter(keys))!r})" if len(keys) == 1 else f" ({count(len(keys), 'key')})"),
        )


def _spread(topic: TopicAudit) -> Iterable[Finding]:
    if topic.spread_count:
        yield Finding(
            Kind.SPREAD,
            topic.topic,
            topic.spread_count,
            f"{count(topic.spread_count, 'key')} that must keep {'its' if topic.spread_count == 1 else 'their'} order "
            "in more than one queue: nobody can consume them in order",
        )


def _hot(topic: TopicAudit) -> Iterable[Finding]:
    for key in topic.keys:
        if key.hot:
            share = key.messages / topic.messages
            fullest = _peak_words(topic, key)
            yield Finding(
                Kind.HOT_KEY,
                topic.topic,
                1,
                f"key {key.key!r} alone has {share:.1%} of all messages ({key.messages:,}), "
                f"{key.messages / topic.key_skew.mean:,.0f} times the mean key{fullest}",
            )


def _peak_words(topic: TopicAudit, key: KeyLoad) -> str:
    place, _ = key.queues[0] if key.queues else ("", 0)
    loads = {f"{queue.broker}:{queue.queue_id}": queue.messages for queue in topic.queues}
    times = loads.get(place, 0) / topic.queue_skew.mean
    return f", and puts {place} at {times:.2f} × the mean queue" if times > 1 and len(topic.queues) > 1 else ""


def _uneven(topic: TopicAudit) -> Iterable[Finding]:
    rest = _without_hot(topic)
    by_broker: dict[str, list[int]] = {}
    for queue, left in zip(topic.queues, rest, strict=True):
        by_broker.setdefault(queue.broker, []).append(left)
    # brokers with more queues are to have more
    whole = skew([sum(loads) for loads in by_broker.values()])
    if not topic.queue_skew.even and not skew(rest).even:
        yield _uneven_words(topic, "queue", topic.queue_skew, max(topic.queues, key=lambda queue: queue.messages))
    elif len({len(loads) for loads in by_broker.values()}) == 1 and not topic.broker_skew.even and not whole.even:
        full = max(topic.brokers, key=lambda broker: broker.messages)
        words = f"broker {full.broker} has {topic.broker_skew.peak:.2f} × the mean broker's messages"
        yield Finding(Kind.UNEVEN, topic.topic, 1, words)


def _uneven_words(topic: TopicAudit, what: str, found: Skew, fullest: QueueLoad) -> Finding:
    words = (
        f"the load of the queues is uneven: {_place(fullest)} has {found.peak:.2f} × the mean {what}'s messages "
        f"(Gini {found.gini:.2f}), and luck does not explain it"
    )
    return Finding(Kind.UNEVEN, topic.topic, 1, words)


def _without_hot(topic: TopicAudit) -> list[int]:
    """The loads of the queues without those of hot keys."""
    hot = Counter[str]()
    for key in topic.keys:
        if key.hot:
            hot.update(dict(key.queues))
    return [max(0, queue.messages - hot[f"{queue.broker}:{queue.queue_id}"]) for queue in topic.queues]


def _place(part: Gap | QueueLoad) -> str:
    return f"{part.broker}:{part.queue_id}"
