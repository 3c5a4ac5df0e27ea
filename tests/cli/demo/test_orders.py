"""Orders at a steady rate, and what brokers confirmed of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evenq.cli.demo import topic as topics
from evenq.cli.demo.orders import Orders
from evenq.testing import cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.live


def test_orders_are_sent_confirmed_and_found_again(topic: str, tmp_path: Path) -> None:
    with cluster(brokers=2) as brokers:
        topics.create(brokers.namesrv, topic, queues=2)
        with Orders(brokers.namesrv, topic, rate=400) as orders:
            wait_until(lambda: orders.sent >= 100, "a hundred orders")
        assert len(orders.confirmed()) == orders.sent
        assert orders.failed() == {}
        stored = topics.save(topics.read(brokers.namesrv, topic), tmp_path / "topic.parquet")
    assert sorted(message.key for message in stored) == sorted(f"o-{number}" for number in range(orders.sent))
    orders.save(tmp_path / "sent.jsonl")
    noted = [json.loads(line) for line in (tmp_path / "sent.jsonl").read_text().splitlines()]
    places = {(message.key, *message.place) for message in stored}
    assert {(line["key"], line["broker"], line["queue_id"], line["offset"]) for line in noted} == places


def test_orders_go_on_when_all_connections_of_a_broker_are_cut(topic: str) -> None:
    with cluster(brokers=2) as brokers:
        topics.create(brokers.namesrv, topic, queues=2)
        with Orders(brokers.namesrv, topic, rate=400) as orders:
            wait_until(lambda: orders.sent >= 40, "forty orders")
            assert topics.cut(brokers, "broker-b") >= 1
            before = orders.sent
            wait_until(lambda: orders.sent >= before + 40, "forty more")
        stored = set(topics.read(brokers.namesrv, topic).column("keys").to_pylist())
        assert orders.failed() == {}
        assert stored == set(orders.confirmed())
        assert len(stored) == orders.sent
