"""``evenq cluster``."""

from __future__ import annotations

import pytest

from evenq import Message
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import cluster
from tests.cli.conftest import Evenq
from tests.client.admin.real_only import real_only
from tests.clusters import AnyCluster, brokers, create_topic
from tests.realmq import JavaHost
from tests.waiting import wait_until


def test_brokers_are_listed(at_cluster: Evenq, any_cluster: AnyCluster) -> None:
    addresses = brokers(any_cluster.namesrv)
    # a Java broker has no figures in its first second
    wait_until(lambda: not any(each["error"] for each in at_cluster.json("cluster", "list")), "answers of all brokers")
    lines = at_cluster("cluster", "list")
    assert lines[0].split() == ["cluster", "broker", "id", "address", "version", "in/s", "out/s", "started"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["DefaultCluster", name, "0", address] for name, address in sorted(addresses.items())
    ]


@pytest.mark.live
def test_a_broker_that_does_not_answer_is_listed_too(evenq: Evenq) -> None:
    with cluster(brokers=2) as own:
        own.brokers["broker-a"].faults.add(
            RequestCode.GET_BROKER_RUNTIME_INFO, error=ResponseCode.SYSTEM_ERROR, remark="out of order"
        )
        found = evenq.json("cluster", "list", "--namesrv", own.namesrv)
        assert [(each["broker"]["name"], "version" in each) for each in found] == [
            ("broker-a", False),
            ("broker-b", True),
        ]
        assert found[0]["error"].endswith("out of order")
        lines = evenq("cluster", "list", "--namesrv", own.namesrv)
        assert "out of order" in lines[1]


def test_a_broker_tells_all_of_its_figures(at_cluster: Evenq) -> None:
    wait_until(lambda: not any(each["error"] for each in at_cluster.json("cluster", "list")), "answers of all brokers")
    lines = at_cluster("cluster", "status", "broker-a")
    assert ["brokerActive", "true"] in [line.split() for line in lines]
    assert at_cluster.json("cluster", "status", "broker-a")["broker"]["name"] == "broker-a"
    assert "it knows broker-a (0), broker-b (0)" in at_cluster.error("cluster", "status", "broker-z")


def test_producers_are_listed(
    at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str, java: JavaHost
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    producer = java.producer(any_cluster.namesrv, group)
    producer.send([Message(topic, b"x")])
    found = wait_until(lambda: at_cluster.json("cluster", "producers", group), "a producer")
    assert [each["client_id"] for each in found[group]] == [producer.client_id]
    assert at_cluster("cluster", "producers", group)[1].split()[:2] == [group, producer.client_id]


@real_only
def test_all_producers_are_listed(at_cluster: Evenq) -> None:
    assert at_cluster("cluster", "producers")[0].split()[:2] == ["group", "producer"]
