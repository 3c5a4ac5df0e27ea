from __future__ import annotations

from dataclasses import replace

import pytest

from evenq.spark.jobs.audit.findings import Audit, Copy, Gap, KeyLoad, Kind, Order, TopicAudit
from evenq.spark.jobs.audit.judging import findings, hot_floor, is_hot, means_order, verdict
from evenq.spark.jobs.audit.measures import skew
from tests.spark.jobs.audit.samples import clean_topic, faulty_topic


def kinds(topic: TopicAudit) -> list[Kind]:
    return [finding.kind for finding in findings(topic)]


def test_a_clean_topic_has_no_findings() -> None:
    topic = clean_topic()
    assert findings(topic) == ()
    assert verdict([topic]).startswith("All is well: 4,000 messages, none missing, none twice")


def test_every_fault_is_named_the_worst_first() -> None:
    topic = faulty_topic()
    assert kinds(topic) == [Kind.GAP, Kind.DUPLICATE, Kind.LATE, Kind.HOT_KEY]
    said = verdict([replace(topic, findings=findings(topic))])
    assert said.endswith("1 message is missing, 3 are there twice, 2 are out of order and 1 key is hot.")


def test_a_queue_that_only_a_hot_key_fills_is_not_another_finding() -> None:
    topic = faulty_topic()
    assert not topic.queue_skew.even
    assert Kind.UNEVEN not in kinds(topic)
    cold = replace(topic, keys=tuple(replace(key, hot=False) for key in topic.keys))
    assert Kind.UNEVEN in kinds(cold)


def test_a_broker_with_more_queues_may_have_more() -> None:
    topic = clean_topic()
    queues = (*topic.queues, replace(topic.queues[0], queue_id=2), replace(topic.queues[0], queue_id=3))
    brokers = (replace(topic.brokers[0], queues=4, messages=4000), topic.brokers[1])
    more = replace(topic, queues=queues, brokers=brokers, queue_skew=skew([1000] * 6), broker_skew=skew([4000, 2000]))
    assert kinds(more) == []


@pytest.mark.parametrize(
    ("sharded", "again", "together", "queues", "told", "order"),
    [
        (0, 0, 0, 4, None, Order.NONE),
        (5, 0, 0, 4, None, Order.SHARDED),
        (0, 100, 25, 4, None, Order.NONE),
        (0, 100, 99, 4, None, Order.KEYED),
        (5, 100, 99, 4, None, Order.KEYED),
        # too few keys to tell, and one queue tells nothing at all
        (0, 5, 5, 4, None, Order.NONE),
        (0, 100, 100, 1, None, Order.NONE),
        (0, 100, 100, 1, True, Order.TOLD),
        (5, 100, 99, 4, False, Order.NONE),
    ],
)
def test_order_is_meant_where_the_topic_shows_it(
    sharded: int, again: int, together: int, queues: int, told: bool | None, order: Order
) -> None:
    assert means_order(sharded=sharded, again=again, together=together, queues=queues, told=told) is order


def test_a_key_is_hot_for_a_queue_not_for_being_one_of_few() -> None:
    assert hot_floor(4000, 8) == 250
    assert is_hot(250, mean_key=25, messages=4000, queues=8)
    assert not is_hot(249, mean_key=2, messages=4000, queues=8)
    assert not is_hot(1000, mean_key=1000, messages=4000, queues=8)
    assert not is_hot(19, mean_key=1, messages=38, queues=8)


def test_long_gaps_and_single_ones_are_told_apart() -> None:
    topic = replace(clean_topic(), gaps=(Gap("orders", "broker-a", 0, 7, 8),))
    assert "1 message cannot be read, in broker-a:0 at offset 7" in findings(topic)[0].words
    topic = replace(topic, gaps=(Gap("orders", "broker-a", 0, 7, 9), Gap("orders", "broker-b", 1, 0, 10)))
    assert "12 messages cannot be read, in 2 queues" in findings(topic)[0].words


def test_values_know_their_sums() -> None:
    topic = replace(faulty_topic(), findings=findings(faulty_topic()))
    audit = Audit(at=0, topics=(topic, clean_topic()), groups=(), traced=False)
    assert audit.messages == topic.messages + 4000
    assert len(audit.findings) == 4
    assert not audit.clean
    assert isinstance(topic.copies[0], Copy)
    assert isinstance(topic.keys[0], KeyLoad)
