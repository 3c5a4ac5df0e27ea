"""RocketMQ's own admin tool sees what we did, and we see what it did; on both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenq import Admin, Message, Producer, StateError
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.realmq import JavaHost, RealCluster
from tests.waiting import wait_until


@pytest.fixture
def admin(any_cluster: AnyCluster) -> Iterator[Admin]:
    with Admin(any_cluster.namesrv) as client:
        yield client


def test_mqadmin_sees_our_topic_until_we_delete_it(
    any_cluster: AnyCluster, admin: Admin, java: JavaHost, topic: str
) -> None:
    admin.create_topic(topic, queues=3, perm="r")
    route = java.mqadmin("topicRoute", "-n", any_cluster.namesrv, "-t", topic)
    assert route.count('"readQueueNums":3') == 2
    assert route.count('"perm":4') == 2
    assert topic in java.mqadmin("topicList", "-n", any_cluster.namesrv).split()
    admin.delete_topic(topic)
    assert topic not in java.mqadmin("topicList", "-n", any_cluster.namesrv).split()


def test_we_see_the_topic_and_the_group_of_mqadmin(
    any_cluster: AnyCluster, admin: Admin, java: JavaHost, topic: str, group: str
) -> None:
    at = ("-n", any_cluster.namesrv, "-c", "DefaultCluster")
    java.mqadmin("updateTopic", *at, "-t", topic, "-r", "3", "-w", "2")
    wait_until(lambda: topic in admin.topics() and len(admin.route(topic)) == 2, "the topic at both brokers")
    assert [(part.broker, part.read_queues, part.write_queues, part.perm) for part in admin.route(topic)] == [
        ("broker-a", 3, 2, "rw"),
        ("broker-b", 3, 2, "rw"),
    ]
    java.mqadmin("updateSubGroup", *at, "-g", group, "-r", "5", "-q", "2")
    (made,) = [each for each in admin.groups() if each.group == group]
    assert (made.brokers, made.max_retries, made.retry_queues) == (("broker-a", "broker-b"), 5, 2)
    admin.delete_group(group)
    java.mqadmin("deleteTopic", *at, "-t", topic)
    assert topic not in admin.topics()


def test_mqadmin_and_we_agree_on_a_group(
    any_cluster: AnyCluster, admin: Admin, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        wait_shown(any_cluster.namesrv, [producer.send(Message(topic, b"x")) for _ in range(10)])
    admin.create_group(group)
    admin.reset(group, topic, "last")
    java.mqadmin("resetOffsetByTime", "-n", any_cluster.namesrv, "-g", group, "-t", topic, "-s", "0")
    assert [(each.offset, each.end) for each in admin.progress(group).queues] == [(0, 5), (0, 5)]
    admin.reset(group, topic, {admin.progress(group).queues[0].queue: 3})
    table = java.mqadmin("consumerProgress", "-n", any_cluster.namesrv, "-g", group, "-t", topic)
    rows = [line.split()[1:6] for line in table.splitlines() if line.startswith(topic[:20])]
    assert sorted(rows) == [["broker-a", "0", "5", "3", "2"], ["broker-b", "0", "5", "0", "5"]]
    assert "Consume Diff Total: 7" in table


@pytest.mark.slow
def test_a_broker_that_leaves_resets_to_its_members(java: JavaHost, topic: str, group: str) -> None:
    """As brokers did before RocketMQ 5: it asks the members to move, and knows times only."""
    settings = {"useServerSideResetOffset": "false"}
    with RealCluster(brokers=1, conf=settings) as cluster, Admin(cluster.namesrv) as admin:
        admin.create_topic(topic, queues=1)
        with Producer(cluster.namesrv) as producer:
            receipts = [producer.send(Message(topic, b"x")) for _ in range(4)]
            (queue,) = {receipt.queue for receipt in receipts}
            wait_shown(cluster.namesrv, receipts)
        admin.create_group(group)
        assert [(each.before, each.after) for each in admin.reset(group, topic, {queue: 2})] == [(0, 2)]
        member = java.push(cluster.namesrv, group, topic, begin=Begin.FIRST)
        assert sorted(received.message.queue_offset for received in member.wait_for(2)) == [2, 3]
        with pytest.raises(StateError, match=r"has members online.* cannot move members to exact offsets"):
            admin.reset(group, topic, {queue: 2})
        assert [each.after for each in admin.reset(group, topic, "first")] == [0]
        offsets = [received.message.queue_offset for received in member.wait_for(6)]
        assert sorted(offsets[2:]) == [0, 1, 2, 3]
        java.stop_clients()
