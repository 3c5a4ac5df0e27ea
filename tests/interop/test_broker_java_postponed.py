"""Java clients and messages that do not go to their queue at once: delayed, timed, tried again, in transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest

from evenq.broker import BrokerSettings, TransactionSettings
from evenq.model import Begin, Message
from evenq.testing import Clock, EmbeddedCluster, cluster
from tests.clusters import AnyCluster, create_topic, route
from tests.realmq import JavaHost, Received
from tests.realmq.clients import LocalState
from tests.waiting import wait_until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def embedded(clock: Clock) -> Iterator[EmbeddedCluster]:
    """A broker whose clock a test can move, and which asks about half messages without much waiting."""
    settings = BrokerSettings(transactions=TransactionSettings(timeout=0.2, check_every=0.5))
    with cluster(clock=clock.now, settings=settings) as running:
        yield running


def bodies(received: list[Received]) -> list[bytes]:
    return sorted(each.message.body for each in received)


def waits(embedded: EmbeddedCluster, level: int) -> bool:
    """Whether a message has come to wait at a delay level."""
    store = embedded.brokers["broker-a"].store
    return embedded.call(lambda: store.bounds("SCHEDULE_TOPIC_XXXX", level - 1)) == (0, 1)


def test_delayed_and_timed_messages_come_when_they_are_due(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    member = java.push(any_cluster.namesrv, group, topic, begin=Begin.FIRST)
    member.wait_ready(len(any_cluster.brokers))
    sent = time.time()
    java.producer(any_cluster.namesrv).send(
        [
            Message(topic, b"at level 1", delay_level=1, tags="paid", keys=["o-1"]),
            Message(topic, b"in 1.2 s", properties={"TIMER_DELAY_MS": "1200"}),
            Message(topic, b"in 1 s", properties={"TIMER_DELAY_SEC": "1"}),
            Message(topic, b"at a time", deliver_at=datetime.fromtimestamp(sent + 1.5, UTC)),
            Message(topic, b"now"),
        ]
    )
    earliest = {b"at level 1": 1.0, b"in 1.2 s": 1.2, b"in 1 s": 1.0, b"at a time": 1.5, b"now": 0.0}
    received = {each.message.body: each for each in member.wait_for(5)}
    waited = {body: received[body].at - sent for body in earliest}
    assert all(earliest[body] - 0.01 <= waited[body] for body in earliest), waited
    delayed = received[b"at level 1"].message
    assert (delayed.topic, delayed.tags, delayed.keys) == (topic, "paid", ("o-1",))
    assert (delayed.properties["DELAY"], delayed.properties["REAL_TOPIC"]) == ("1", topic)


def test_what_is_due_in_hours_comes_when_the_clock_says_so(
    embedded: EmbeddedCluster, clock: Clock, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(embedded.namesrv, topic, queues=1)
    member = java.push(embedded.namesrv, group, topic, begin=Begin.FIRST)
    late = [
        Message(topic, b"2 hours", delay_level=18),
        Message(topic, b"3 days", properties={"TIMER_DELAY_SEC": "259200"}),
    ]
    java.producer(embedded.namesrv).send(late)
    clock.advance(2 * 3600)
    assert bodies(member.wait_for(1)) == [b"2 hours"]
    clock.advance(3 * 86_400 - 2 * 3600 + 1)
    assert bodies(member.wait_for(2)) == [b"2 hours", b"3 days"]


def test_a_listener_that_fails_gets_the_message_again_and_in_the_end_it_is_a_dead_letter(
    embedded: EmbeddedCluster, clock: Clock, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(embedded.namesrv, topic, queues=1)
    # a member that starts before its retry topic is there looks for it 20 s later
    create_topic(embedded.namesrv, f"%RETRY%{group}", queues=1)
    member = java.push(embedded.namesrv, group, topic, begin=Begin.FIRST, fail_times=99, max_times=2)
    java.producer(embedded.namesrv).send([Message(topic, b"hard", keys=["o-1"], tags="paid")])
    for level, seconds in ((3, 10), (4, 30)):
        wait_until(partial(waits, embedded, level), f"a message that waits at level {level}")
        clock.advance(seconds)
    received = member.wait_for(3)
    assert [each.message.reconsume_times for each in received] == [0, 1, 2]
    assert {each.message.topic for each in received} == {topic}

    wait_until(lambda: route(embedded.namesrv, f"%DLQ%{group}"), "a topic for dead letters")
    letters = java.push(embedded.namesrv, f"{group}-letters", f"%DLQ%{group}", begin=Begin.FIRST)
    (letter,) = letters.wait_for(1)
    assert (letter.message.body, letter.message.keys) == (b"hard", ("o-1",))
    assert letter.message.properties["RETRY_TOPIC"] == topic
    assert letter.message.reconsume_times == 3


@pytest.mark.parametrize("state", ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE"])
def test_a_transaction_is_committed_or_rolled_back(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str, state: LocalState
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    member = java.push(any_cluster.namesrv, group, topic, begin=Begin.FIRST)
    producer = java.transactions(any_cluster.namesrv, f"{group}-shop")
    (message_id,) = producer.send([Message(topic, b"half", tags="paid", keys=["o-1"])], state)
    java.producer(any_cluster.namesrv).send([Message(topic, b"plain")])
    wanted = [b"half", b"plain"] if state == "COMMIT_MESSAGE" else [b"plain"]
    received = member.wait_for(len(wanted))
    assert bodies(received) == wanted
    half = next((each.message for each in received if each.message.body == b"half"), None)
    if half is not None:
        assert (half.tags, half.keys, half.unique_key) == ("paid", ("o-1",), message_id)
        assert {"REAL_TOPIC", "REAL_QID"}.isdisjoint(half.properties)
        assert (half.properties["TRAN_MSG"], half.properties["PGROUP"]) == ("true", f"{group}-shop")


def test_a_producer_that_does_not_know_yet_is_asked(
    embedded: EmbeddedCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(embedded.namesrv, topic, queues=1)
    member = java.push(embedded.namesrv, group, topic, begin=Begin.FIRST)
    producer = java.transactions(embedded.namesrv, f"{group}-shop")
    producer.send([Message(topic, b"half %d" % number, tags="paid") for number in range(3)], "UNKNOW")
    asked = producer.wait_for(3)
    assert {(each.message.topic, each.message.tags) for each in asked} == {(topic, "paid")}
    assert bodies(member.wait_for(3)) == [b"half 0", b"half 1", b"half 2"]


def test_a_request_is_replied_to(any_cluster: AnyCluster, java: JavaHost, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    member = java.push(any_cluster.namesrv, group, topic, begin=Begin.FIRST, reply=True)
    member.wait_ready(len(any_cluster.brokers))
    reply = java.producer(any_cluster.namesrv, f"{group}-askers").request(Message(topic, b"hello"))
    assert reply.body == b"HELLO"
    assert {"CORRELATION_ID", "PUSH_REPLY_TIME"} <= reply.properties.keys()
