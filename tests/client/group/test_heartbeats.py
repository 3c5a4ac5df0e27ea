"""What clients tell the brokers of themselves, and when."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evenq import Intervals, LitePullConsumer, Message, Producer, PushConsumer
from evenq.protocol.bodies import Heartbeat
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live


class Told:
    """The heartbeats that two brokers got, by broker."""

    def __init__(self, running: EmbeddedCluster) -> None:
        self.namesrv = running.namesrv
        self._lock = threading.Lock()
        self._beats: defaultdict[str, list[Heartbeat]] = defaultdict(list)
        for name, broker in running.brokers.items():

            def note(request: Command, name: str = name) -> bool:
                with self._lock:
                    self._beats[name].append(Heartbeat.decode(request.body))
                return False

            broker.faults.add(RequestCode.HEART_BEAT, when=note)

    def of(self, client_id: str) -> dict[str, list[Heartbeat]]:
        with self._lock:
            found = {
                name: [beat for beat in beats if beat.client_id == client_id] for name, beats in self._beats.items()
            }
        return {name: beats for name, beats in found.items() if beats}

    def wait_for_both(self, client_id: str) -> Heartbeat:
        """The last heartbeat, when every broker has one."""
        wait_until(lambda: self.of(client_id).keys() == {"broker-a", "broker-b"}, "a heartbeat at both brokers")
        return self.of(client_id)["broker-b"][-1]


@pytest.fixture
def told() -> Iterator[Told]:
    with cluster(brokers=2) as running:
        create_topic(running.namesrv, "orders", queues=1)
        yield Told(running)


def test_a_producer_tells_its_group(told: Told) -> None:
    with Producer(told.namesrv, group="shop") as producer:
        producer.send(Message("orders", b"x"))
        beat = told.wait_for_both(producer.client_id)
    assert [data.group_name for data in beat.producer_data_set] == ["shop"]
    assert beat.consumer_data_set == []


@pytest.mark.parametrize(
    ("begin", "where"),
    [
        ("last", "CONSUME_FROM_LAST_OFFSET"),
        ("first", "CONSUME_FROM_FIRST_OFFSET"),
        (datetime.now(UTC), "CONSUME_FROM_TIMESTAMP"),
    ],
    ids=["last", "first", "time"],
)
def test_a_push_consumer_tells_what_it_is(told: Told, begin: str | datetime, where: str) -> None:
    with PushConsumer(told.namesrv, "billing", begin=begin) as consumer:
        consumer.subscribe("orders", "paid || refunded")
        consumer.start(lambda messages: None)
        [data] = told.wait_for_both(consumer.client_id).consumer_data_set
    assert (data.group_name, data.consume_type, data.message_model) == ("billing", "CONSUME_PASSIVELY", "CLUSTERING")
    assert data.consume_from_where == where
    wanted = {each.topic: (each.sub_string, each.tags_set) for each in data.subscription_data_set}
    assert wanted == {"orders": ("paid || refunded", {"paid", "refunded"}), "%RETRY%billing": ("*", set())}


def test_a_pull_consumer_that_broadcasts_tells_so(told: Told, tmp_path: Path) -> None:
    with LitePullConsumer(
        told.namesrv, "billing", instance="c1", model="BROADCASTING", offsets_in=tmp_path
    ) as consumer:
        consumer.subscribe("orders", sql="total > 100")
        consumer.start()
        [data] = told.wait_for_both(consumer.client_id).consumer_data_set
    assert (data.group_name, data.consume_type, data.message_model) == ("billing", "CONSUME_ACTIVELY", "BROADCASTING")
    [wanted] = data.subscription_data_set
    assert (wanted.topic, wanted.sub_string, wanted.expression_type) == ("orders", "total > 100", "SQL92")


def test_a_subscription_that_changes_is_told_at_once(told: Told) -> None:
    create_topic(told.namesrv, "bills", queues=1)
    with PushConsumer(told.namesrv, "billing", intervals=Intervals(heartbeat=600)) as consumer:

        def wait_for(topic: str, expression: str | None) -> None:
            def all_know() -> bool:
                last = [beats[-1].consumer_data_set[0] for beats in told.of(consumer.client_id).values()]
                known = [{each.topic: each.sub_string for each in data.subscription_data_set} for data in last]
                return [each.get(topic) for each in known] == [expression] * 2

            wait_until(all_know, f"both brokers told of {topic}: {expression}")

        consumer.subscribe("orders")
        consumer.start(lambda messages: None)
        wait_for("orders", "*")
        consumer.subscribe("orders", "paid")
        wait_for("orders", "paid")
        consumer.subscribe("bills")
        wait_for("bills", "*")
        consumer.unsubscribe("bills")
        wait_for("bills", None)


def test_heartbeats_are_repeated(told: Told) -> None:
    with Producer(told.namesrv, intervals=Intervals(heartbeat=0.05)) as producer:
        producer.send(Message("orders", b"x"))
        wait_until(
            lambda: (
                len(told.of(producer.client_id)) == 2
                and min(len(beats) for beats in told.of(producer.client_id).values()) >= 5
            ),
            "five heartbeats at each broker",
        )
