"""``evenq topic``."""

from __future__ import annotations

from evenq import Message, Producer
from evenq.protocol import RequestCode
from evenq.protocol.bodies import TopicConfig
from evenq.protocol.headers import TopicRequest
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, ask, brokers, wait_shown


def test_a_topic_from_beginning_to_end(at_cluster: Evenq, topic: str) -> None:
    evenq = at_cluster
    made = evenq.json("topic", "create", topic, "--queues", "2")
    assert [(part["broker"], part["read_queues"], part["write_queues"], part["perm"]) for part in made] == [
        ("broker-a", 2, 2, "rw"),
        ("broker-b", 2, 2, "rw"),
    ]
    assert evenq.json("topic", "route", topic) == made
    assert topic in evenq.json("topic", "list")
    assert topic in evenq("topic", "list")
    assert "TBW102" not in evenq("topic", "list")
    assert "TBW102" in evenq("topic", "list", "--all")
    changed = evenq("topic", "update", topic, "--write-queues", "1", "--perm", "r")
    assert [line.split()[:5] for line in changed[1:]] == [
        ["broker-a", "DefaultCluster", "2", "1", "r"],
        ["broker-b", "DefaultCluster", "2", "1", "r"],
    ]
    assert evenq("topic", "delete", topic) == [f"topic {topic} is deleted"]
    assert topic not in evenq.json("topic", "list")
    assert topic in evenq.error("topic", "delete", topic)


def test_a_topic_on_one_broker(at_cluster: Evenq, topic: str) -> None:
    made = at_cluster("topic", "create", topic, "--queues", "1", "--broker", "broker-b")
    assert made[0].split() == ["broker", "cluster", "read", "queues", "write", "queues", "perm", "addresses"]
    assert [line.split()[0] for line in made[1:]] == ["broker-b"]


def test_a_topic_with_attributes(at_cluster: Evenq, any_cluster: AnyCluster, topic: str) -> None:
    create = ("topic", "create", topic, "--queues", "1", "--attribute")
    assert at_cluster.error(*create, "message.type") == "--attribute='message.type': give NAME=VALUE"
    assert "FIFO" in at_cluster.error(*create, "message.type=GREEN")
    at_cluster(*create, "message.type=FIFO", "--attribute", "reserve.time=5000")
    (address, *_) = brokers(any_cluster.namesrv).values()
    answer = ask(address, RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic=topic))
    assert TopicConfig.decode(answer.body).attributes == {"message.type": "FIFO", "reserve.time": "5000"}


def test_a_topic_is_not_created_twice(at_cluster: Evenq, topic: str) -> None:
    at_cluster("topic", "create", topic, "--queues", "1")
    assert at_cluster.error("topic", "create", topic) == (
        f"topic='{topic}': it is there already: change it with evenq topic update"
    )


def test_the_status_adds_up(at_cluster: Evenq, any_cluster: AnyCluster, topic: str) -> None:
    at_cluster("topic", "create", topic, "--queues", "1")
    with Producer(any_cluster.namesrv) as producer:
        wait_shown(any_cluster.namesrv, [producer.send(Message(topic, b"x")) for _ in range(6)])
    lines = at_cluster("topic", "status", topic)
    assert [line.split()[:4] for line in lines[1:3]] == [["broker-a:0", "0", "3", "3"], ["broker-b:0", "0", "3", "3"]]
    assert lines[3].split() == ["all", "6"]
    status = at_cluster.json("topic", "status", topic)
    assert status["messages"] == 6
    assert [(each["queue"]["broker"], each["messages"]) for each in status["queues"]] == [
        ("broker-a", 3),
        ("broker-b", 3),
    ]
