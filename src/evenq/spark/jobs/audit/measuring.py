"""Facts in, what was found out: the passes in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from evenq.model import MessageQueue
from evenq.spark.jobs.audit import counting
from evenq.spark.jobs.audit.counting import LISTED
from evenq.spark.jobs.audit.findings import BrokerLoad, Gap, Order, QueueLoad, Slot, TopicAudit
from evenq.spark.jobs.audit.gaps import BLOCK, Span, missing, short_blocks
from evenq.spark.jobs.audit.judging import findings, is_hot, means_order
from evenq.spark.jobs.audit.measures import percentiles, skew, skew_counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["audit_facts"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


def audit_facts(
    facts: DataFrame,
    planned: Mapping[MessageQueue, Sequence[Span]],
    *,
    ordered: bool | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> tuple[TopicAudit, ...]:
    """Audit facts, with their queues (:mod:`~evenq.spark.jobs.audit.facts`).

    ``planned`` has every queue of the topics, and which of its offsets the facts are of. ``ordered`` says whether keys
    must keep their order; None finds it out.
    """
    say("messages by queue, time and key; duplicates")
    about = _planned_messages(planned)
    # side by side: what is sorted here leaves cores to the others
    traffic, keys, copies = _together(
        facts,
        lambda: counting.traffic(facts),
        lambda: counting.keys(facts, about),
        lambda: counting.copies(facts, sum(about.values())),
    )
    loads = _loads(traffic.slots, planned)
    topics = sorted(loads)
    messages = {topic: sum(queue.messages for queue in loads[topic]) for topic in topics}
    orders = {
        topic: means_order(
            sharded=keys[topic].sharded,
            again=keys[topic].again,
            together=keys[topic].together,
            queues=len(loads[topic]),
            told=ordered,
        )
        for topic in topics
    }
    by_key = [topic for topic, order in orders.items() if order in (Order.KEYED, Order.TOLD)]
    say("order")
    once = counting.without(facts, copies)
    if ordered is False:
        late, spread = [], []
    else:
        sharded = any(keys[topic].sharded for topic in topics)
        late = counting.late(once, by_key, sum(messages.values())) if by_key or sharded else []
        apart = any(
            keys[topic].apart or (topic in by_key and keys[topic].again > keys[topic].together) for topic in topics
        )
        spread = counting.spread(once, by_key) if apart else []
    say("gaps")
    gaps = _gaps(facts, loads, planned)
    found = []
    for topic in topics:
        queues = loads[topic]
        brokers = _brokers(queues)
        own_copies = [copy for copy in copies if copy.topic == topic]
        own_late = [one for one in late if one.topic == topic]
        own_spread = [one for one in spread if one.topic == topic]
        key_skew = skew_counted(keys[topic].loads)
        audit = TopicAudit(
            topic=topic,
            queues=tuple(queues),
            brokers=tuple(brokers),
            slots=tuple(slot for slot in traffic.slots if slot.topic == topic),
            slot_ms=traffic.slot_ms,
            queue_skew=skew([queue.messages for queue in queues]),
            broker_skew=skew([broker.messages for broker in brokers]),
            key_skew=key_skew,
            keyless=messages[topic] - sum(load * many for load, many in keys[topic].loads.items()),
            keys=tuple(
                replace(
                    key, hot=is_hot(key.messages, mean_key=key_skew.mean, messages=messages[topic], queues=len(queues))
                )
                for key in keys[topic].largest
            ),
            order=orders[topic],
            gaps=tuple(gaps.get(topic, ())),
            copies=tuple(own_copies[:LISTED]),
            copies_count=len(own_copies),
            late=tuple(own_late[:LISTED]),
            late_count=len(own_late),
            spread=tuple(own_spread[:LISTED]),
            spread_count=len(own_spread),
            stored_after=percentiles(traffic.stored_after.get(topic, {})),
        )
        found.append(replace(audit, findings=findings(audit)))
    return tuple(found)


def _planned_messages(planned: Mapping[MessageQueue, Sequence[Span]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for queue, spans in planned.items():
        found[queue.topic] = found.get(queue.topic, 0) + sum(stop - start for start, stop in spans)
    return found


def _together(
    facts: DataFrame, first: Callable[[], A], second: Callable[[], B], third: Callable[[], C]
) -> tuple[A, B, C]:
    """All three at a time, each in a thread whose Spark jobs are the caller's."""
    from pyspark import inheritable_thread_target

    kept = inheritable_thread_target(facts.sparkSession)
    with ThreadPoolExecutor(3) as pool:
        one, two, three = pool.submit(kept(first)), pool.submit(kept(second)), pool.submit(kept(third))
        return one.result(), two.result(), three.result()


def _loads(slots: Sequence[Slot], planned: Mapping[MessageQueue, Sequence[Span]]) -> dict[str, list[QueueLoad]]:
    """Every queue that there is, also those without messages."""
    counts: dict[MessageQueue, tuple[int, int]] = {}
    for slot in slots:
        queue = MessageQueue(slot.topic, slot.broker, slot.queue_id)
        messages, size = counts.get(queue, (0, 0))
        counts[queue] = (messages + slot.messages, size + slot.bytes)
    found: dict[str, list[QueueLoad]] = {}
    for queue in sorted({*planned, *counts}):
        spans = planned.get(queue, ())
        first, end = (spans[0][0], spans[-1][1]) if spans else (0, 0)
        load = QueueLoad(queue.topic, queue.broker, queue.queue_id, *counts.get(queue, (0, 0)), first, end)
        found.setdefault(queue.topic, []).append(load)
    return found


def _brokers(queues: Sequence[QueueLoad]) -> list[BrokerLoad]:
    found: dict[str, list[QueueLoad]] = {}
    for queue in queues:
        found.setdefault(queue.broker, []).append(queue)
    return [
        BrokerLoad(each[0].topic, broker, len(each), sum(one.messages for one in each), sum(one.bytes for one in each))
        for broker, each in sorted(found.items())
    ]


def _gaps(
    facts: DataFrame, loads: Mapping[str, Sequence[QueueLoad]], planned: Mapping[MessageQueue, Sequence[Span]]
) -> dict[str, list[Gap]]:
    found: dict[str, list[Gap]] = {}
    for queue in (queue for queues in loads.values() for queue in queues):
        place = (queue.topic, queue.broker, queue.queue_id)
        spans = planned.get(MessageQueue(*place), ())
        if sum(stop - start for start, stop in spans) <= queue.messages:
            continue
        blocks, there = counting.offsets_there(
            facts,
            *place,
            BLOCK,
            lambda counts, spans=spans: short_blocks(spans, counts),  # type: ignore[misc]
        )
        found.setdefault(queue.topic, []).extend(Gap(*place, *span) for span in missing(spans, blocks, there))
    return found
