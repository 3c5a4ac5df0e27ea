"""Audits as they would be found, for tests of what is made of them."""

from __future__ import annotations

from dataclasses import replace

from evenq.spark.jobs.audit.findings import (
    Audit,
    BrokerLoad,
    Consumer,
    Copy,
    Gap,
    GroupAudit,
    Holding,
    KeyLoad,
    LagPoint,
    LagSample,
    Late,
    Move,
    Order,
    QueueLoad,
    Slot,
    TopicAudit,
)
from evenq.spark.jobs.audit.judging import findings
from evenq.spark.jobs.audit.measures import Percentiles, skew, skew_counted

__all__ = ["BEGAN", "clean_topic", "faulty_topic", "traced_group", "whole_audit"]

BEGAN = 1_790_000_000_000
PLACES = [(broker, number) for broker in ("broker-a", "broker-b") for number in range(2)]


def _topic(loads: list[int]) -> TopicAudit:
    queues = tuple(
        QueueLoad("orders", broker, number, load, 100 * load, 0, load)
        for (broker, number), load in zip(PLACES, loads, strict=True)
    )
    brokers = tuple(
        BrokerLoad("orders", broker, 2, sum(load), 100 * sum(load))
        for broker, load in (("broker-a", loads[:2]), ("broker-b", loads[2:]))
    )
    return TopicAudit(
        topic="orders",
        queues=queues,
        brokers=brokers,
        slots=tuple(
            Slot("orders", broker, number, BEGAN + 1000 * second, load // 10, 10 * load)
            for (broker, number), load in zip(PLACES, loads, strict=True)
            for second in range(10)
        ),
        slot_ms=1000,
        queue_skew=skew(loads),
        broker_skew=skew([sum(loads[:2]), sum(loads[2:])]),
        key_skew=skew_counted({10: sum(loads) // 10}),
        keyless=0,
        keys=tuple(KeyLoad("orders", f"customer-{number}", 10, 1000, (("broker-a:0", 10),)) for number in range(20)),
        order=Order.KEYED,
        gaps=(),
        copies=(),
        copies_count=0,
        late=(),
        late_count=0,
        spread=(),
        spread_count=0,
        stored_after=Percentiles(sum(loads), 1.0, 3.0, 12.0, 40.0, 250.0),
    )


def clean_topic() -> TopicAudit:
    return _topic([1000, 1000, 1000, 1000])


def faulty_topic() -> TopicAudit:
    """A hot key, three duplicates, two messages out of order, one that is missing."""
    topic = _topic([2200, 1000, 1000, 1000])
    return replace(
        topic,
        keys=(KeyLoad("orders", "<vip>", 1200, 120_000, (("broker-a:0", 1200),), True), *topic.keys),
        gaps=(Gap("orders", "broker-b", 1, 77, 78),),
        copies=tuple(
            Copy("orders", f"ID-{number}", f"customer-{number}", "broker-a", 1, 900 + number, BEGAN, "broker-a:1:5")
            for number in range(3)
        ),
        copies_count=3,
        late=tuple(
            Late("orders", f"customer-{number}", "broker-b", 0, 500 + number, BEGAN, BEGAN + 40) for number in range(2)
        ),
        late_count=2,
    )


def traced_group() -> GroupAudit:
    consumers = (
        Consumer("billing", "10.0.0.1@11", 2600, 260_000, 3),
        Consumer("billing", "10.0.0.2@12", 2600, 260_000, 3),
    )
    return GroupAudit(
        group="billing",
        samples=tuple(
            LagSample(BEGAN + look, "billing", "orders", broker, number, 900 + look // 1000, 1000)
            for look in (0, 60_000)
            for broker, number in PLACES
        ),
        lag=tuple(LagPoint("billing", BEGAN + 1000 * second, (7 * second) % 40) for second in range(60)),
        slot_ms=1000,
        consumers=consumers,
        consumer_skew=skew([2600, 2600]),
        holdings=tuple(
            Holding(
                "billing", "orders", broker, number, BEGAN + 1000 * second, consumers[second > 30 or number].consumer, 9
            )
            for broker, number in PLACES
            for second in range(60)
        ),
        moves=(Move("billing", "orders", "broker-a", 0, 400, BEGAN + 31_000, "10.0.0.1@11", "10.0.0.2@12"),),
        moves_count=1,
        again=3,
        consumed_after=Percentiles(5200, 2.0, 9.0, 50.0, 1200.0, 5000.0),
        whole_way=Percentiles(5200, 3.0, 12.0, 70.0, 1300.0, 5100.0),
        handling=Percentiles(5200, 1.0, 2.0, 4.0, 8.0, 20.0),
    )


def whole_audit() -> Audit:
    topic = faulty_topic()
    return Audit(
        at=BEGAN + 100_000,
        topics=(replace(topic, findings=findings(topic)),),
        groups=(traced_group(), GroupAudit(group="archive", samples=())),
        traced=True,
        report="out/report.html",
    )
