"""Rebalancing goes on, whatever strategies, room resolvers and listeners raise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from evenq import LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import Plan, StrategyLike, strategy
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

COUNT = 20
# less than the interval of rebalancing: whatever failed must be tried again before the next look that is due anyway
PATIENCE_S = 15.0


@pytest.fixture
def namesrv(embedded_cluster: AnyCluster, topic: str) -> str:
    create_topic(embedded_cluster.namesrv, topic, queues=2)
    with Producer(embedded_cluster.namesrv) as producer:
        for number in range(COUNT):
            producer.send(Message(topic, b"%d" % number))
    return embedded_cluster.namesrv


def consume_all(
    namesrv: str, topic: str, group: str, strategy: StrategyLike = "AVG", *listeners: Callable[[Plan], None]
) -> None:
    """Let a member handle every message of the topic."""
    lock, bodies = threading.Lock(), set[bytes]()

    def handle(messages: list[MessageView]) -> None:
        with lock:
            bodies.update(message.body for message in messages)

    with PushConsumer(namesrv, group, begin="first", strategy=strategy) as consumer:
        consumer.subscribe(topic)
        for listener in listeners:
            consumer.on_rebalance(listener)
        consumer.start(handle)
        wait_until(lambda: len(bodies) == COUNT, lambda: f"{COUNT} messages: {len(bodies)}", PATIENCE_S)


class FailingAtFirst:
    """Raises in the first calls."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    def pass_or_raise(self) -> None:
        self._failures -= 1
        if self._failures >= 0:
            raise KeyError("no such room")


def test_a_strategy_that_raises_is_asked_again(
    namesrv: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = FailingAtFirst(5)

    def flaky(group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if queues[0].topic == topic:
            failing.pass_or_raise()
        return list(queues)

    consume_all(namesrv, topic, group, flaky)
    [message] = [record.getMessage() for record in caplog.records if "strategy" in record.getMessage()]
    assert message.startswith(f"strategy flaky of group {group} for topic {topic} failed: KeyError: 'no such room'")


def test_a_room_resolver_that_raises_is_asked_again(
    namesrv: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = FailingAtFirst(3)

    def room_of_broker(broker: str) -> str:
        failing.pass_or_raise()
        return "room"

    nearby = strategy(
        "MACHINE_ROOM_NEARBY", inner="AVG", broker_room=room_of_broker, member_room=lambda client_id: "room"
    )
    consume_all(namesrv, topic, group, nearby)
    assert f"strategy MACHINE_ROOM_NEARBY-AVG of group {group}" in caplog.text


def test_a_plan_is_carried_out_though_a_listener_raises(
    namesrv: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    plans: list[Plan] = []

    def broken_listener(plan: Plan) -> None:
        raise ZeroDivisionError

    consume_all(namesrv, topic, group, "AVG", broken_listener, plans.append)
    assert plans
    named = [record for record in caplog.records if "broken_listener" in record.getMessage()]
    assert len(named) == 1, "once, though it was called with several plans"


def test_a_listener_of_assignments_that_raises_is_named(
    namesrv: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def broken_listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        raise ZeroDivisionError

    with LitePullConsumer(namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.on_assignment(broken_listener)
        consumer.on_assignment(lambda topic, queues, mine: told.append(topic))
        consumer.start()
        wait_until(lambda: told, "a call of the listener behind the one that raises", PATIENCE_S)
    assert "broken_listener failed: ZeroDivisionError" in caplog.text
