"""Topics on both brokers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from evenq import Admin, ArgumentError, IncompleteAnswer, Message, Producer, RefusedError, SendResult, TopicNotFound
from evenq.broker import BrokerSettings
from evenq.broker.limits import Limits
from evenq.protocol.bodies import TopicConfig
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.headers import KvKey, KvValue, TopicRequest
from evenq.testing import cluster
from tests.clusters import AnyCluster, ask, brokers, route
from tests.waiting import wait_until


def layout(admin: Admin, topic: str) -> dict[str, tuple[int, int, str]]:
    return {part.broker: (part.read_queues, part.write_queues, part.perm) for part in admin.route(topic)}


def test_a_new_topic_is_known_and_can_be_written_at_once(any_cluster: AnyCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, queues=3)
    assert layout(admin, topic) == {"broker-a": (3, 3, "rw"), "broker-b": (3, 3, "rw")}
    with Producer(any_cluster.namesrv) as producer:
        assert {producer.send(Message(topic, b"x")).queue.queue_id for _ in range(6)} == {0, 1, 2}


def test_the_route_tells_where_the_brokers_are(admin: Admin, wide: str) -> None:
    masters = admin.masters()
    assert [(part.broker, part.cluster, part.addresses) for part in admin.route(wide)] == [
        (name, "DefaultCluster", {0: masters[name]}) for name in ("broker-a", "broker-b")
    ]


def test_a_topic_may_be_on_some_brokers_only(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, queues=1, perm="w", brokers=["broker-b"])
    assert layout(admin, topic) == {"broker-b": (1, 1, "w")}


def test_a_topic_has_the_attributes_that_it_was_made_with(any_cluster: AnyCluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, queues=1, attributes={"message.type": "FIFO", "reserve.time": "5000"})
    admin.update_topic(topic, queues=2)
    for address in brokers(any_cluster.namesrv).values():
        answer = ask(address, RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic=topic))
        assert TopicConfig.decode(answer.body).attributes == {"message.type": "FIFO", "reserve.time": "5000"}


def test_an_ordered_topic_has_its_layout_at_the_name_server(any_cluster: AnyCluster, admin: Admin, topic: str) -> None:
    # asked here, and not in the route: a Java name server tells it there only where its settings allow it
    def order() -> str | None:
        header = KvKey(namespace="ORDER_TOPIC_CONFIG", key=topic)
        return KvValue.from_ext(ask(any_cluster.namesrv, RequestCode.GET_KV_CONFIG, header).ext).value

    admin.create_topic(topic, queues=2, order=True)
    assert order() == "broker-a:2;broker-b:2"
    admin.delete_topic(topic)
    admin.create_topic(topic, queues=2)
    assert order() is None


def test_an_update_changes_what_is_given_and_nothing_else(admin: Admin, wide: str) -> None:
    steps: list[tuple[dict[str, Any], tuple[int, int, str]]] = [
        ({"perm": "r"}, (2, 2, "r")),
        ({"queues": 4}, (4, 4, "r")),
        ({"write_queues": 1}, (4, 1, "r")),
        ({"read_queues": 1, "perm": "rw"}, (1, 1, "rw")),
    ]
    for changes, expected in steps:
        admin.update_topic(wide, **changes)
        assert layout(admin, wide) == dict.fromkeys(("broker-a", "broker-b"), expected)


def test_an_update_reaches_the_brokers_that_have_the_topic(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, queues=1, brokers=["broker-a"])
    admin.update_topic(topic, queues=2)
    assert layout(admin, topic) == {"broker-a": (2, 2, "rw")}


def test_a_deleted_topic_is_gone_everywhere_and_alone(any_cluster: AnyCluster, admin: Admin, wide: str) -> None:
    admin.create_topic(f"{wide}-other", queues=1)
    admin.delete_topic(wide)
    assert wide not in admin.topics(system=True)
    assert f"{wide}-other" in admin.topics()
    assert route(any_cluster.namesrv, wide) == {}
    for address in admin.masters().values():
        answer = ask(address, RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic=wide))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_what_rocketmq_has_for_itself_is_listed_on_request(admin: Admin, wide: str) -> None:
    own, every = admin.topics(), admin.topics(system=True)
    assert wide in own
    assert list(every) == sorted(every)
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(every) - set(own)


def test_the_status_tells_what_each_queue_holds(admin: Admin, wide: str, sent: list[SendResult]) -> None:
    status = admin.topic_status(wide)
    assert [queue.queue for queue in status.queues] == sorted({receipt.queue for receipt in sent})
    assert [(queue.min_offset, queue.max_offset, queue.messages) for queue in status.queues] == [(0, 3, 3)] * 4
    assert status.messages == 12
    last = [admin.message(receipt.offset_msg_id) for receipt in sent if receipt.offset == 2]
    assert {queue.queue: queue.last_stored for queue in status.queues} == {
        message.queue: message.stored_at for message in last
    }


def test_an_empty_queue_was_never_written(admin: Admin, wide: str) -> None:
    assert {(queue.messages, queue.last_stored) for queue in admin.topic_status(wide).queues} == {(0, None)}


@pytest.mark.live
def test_when_one_broker_refuses_the_error_names_it_and_the_other_has_done_it(topic: str) -> None:
    with cluster(brokers=2) as own, Admin(own.namesrv) as admin:
        own.brokers["broker-a"].faults.add(
            RequestCode.UPDATE_AND_CREATE_TOPIC, error=ResponseCode.SYSTEM_ERROR, remark="the disk is full"
        )
        with pytest.raises(RefusedError, match=rf"{admin.masters()['broker-a']} refused .* the disk is full"):
            admin.create_topic(topic, queues=1)
        wait_until(lambda: route(own.namesrv, topic) == {"broker-b": 1}, "the topic on the other broker")
        assert layout(admin, topic) == {"broker-b": (1, 1, "rw")}


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda admin: admin.create_topic("t", queues=0), "queues=0: give at least 1"),
        (lambda admin: admin.create_topic("t", perm="x"), "perm='x': give one of rw, r, w"),
        (lambda admin: admin.create_topic("t", brokers=["broker-z"]), "'broker-z'.*broker-a, broker-b"),
        (lambda admin: admin.create_topic("t", brokers=[]), r"brokers=\[\]: give some of broker-a, broker-b"),
        (lambda admin: admin.update_topic("t"), "give something to change"),
        (lambda admin: admin.update_topic("t", read_queues=-1), "read_queues=-1"),
    ],
)
def test_what_cannot_be_is_refused_here(admin: Admin, act: Callable[[Admin], object], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        act(admin)


@pytest.mark.parametrize("act", ["route", "topic_status", "delete_topic"])
def test_a_topic_that_is_not_there_is_named(admin: Admin, topic: str, act: str) -> None:
    with pytest.raises(TopicNotFound, match=topic):
        getattr(admin, act)(topic)
    with pytest.raises(TopicNotFound, match=topic):
        admin.update_topic(topic, queues=1)


@pytest.mark.live
def test_a_list_that_is_cut_is_an_error_that_names_the_way_out() -> None:
    settings = BrokerSettings(limits=Limits(max_admin_rows=15))
    with cluster(settings=settings) as small, Admin(small.namesrv) as admin:
        admin.create_topic("narrow", queues=15)
        assert len(admin.topic_status("narrow").queues) == 15
        admin.create_topic("wide", queues=16)
        for number in range(16):
            admin.create_group(f"g{number}")
        for ask_for_many in (partial(admin.topic_status, "wide"), admin.groups, partial(admin.progress, "g1")):
            with pytest.raises(IncompleteAnswer, match=r"only the first 15 .* --max-admin-rows"):
                ask_for_many()
