from typing import Any

import pytest

from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.protocol import bodies
from evenq.protocol.bodies import (
    Body,
    BrokerData,
    ClusterInfo,
    ConsumeStats,
    DataVersion,
    Heartbeat,
    LockRequest,
    Members,
    OffsetPair,
    Subscription,
    TimeSpans,
    TopicRoute,
)
from tests.protocol.cases import load

QUEUE = MessageQueue("t", "broker-a", 3)


@pytest.mark.parametrize("vector", load("bodies"), ids=lambda vector: str(vector["body"]))
def test_what_java_wrote(vector: dict[str, Any]) -> None:
    kind: type[Body] = getattr(bodies, vector["body"])
    text = vector["json"].encode()
    body = kind.decode(text)
    assert kind.decode(body.encode()) == body
    if kind is not TimeSpans:  # Java adds the times as text there, and reads none of it
        assert body.encode() == text


def test_what_java_wrote_is_understood() -> None:
    vectors = {vector["body"]: vector["json"].encode() for vector in load("bodies")}
    heartbeat = Heartbeat.decode(vectors["Heartbeat"])
    (consumer,) = heartbeat.consumer_data_set
    assert (heartbeat.client_id, heartbeat.producer_data_set[0].group_name) == ("c@1", "pg")
    assert consumer.subscription_data_set == [
        Subscription(topic="t", sub_string="A || B", tags_set={"A"}, code_set={65}, sub_version=123)
    ]
    route = TopicRoute.decode(vectors["TopicRoute"])
    assert route.broker_datas[0].master == "1.1.1.1:10911"
    assert route.queue_datas[0].write_queue_nums == 4
    stats = ConsumeStats.decode(vectors["ConsumeStats"])
    assert stats.offset_table == {QUEUE: OffsetPair(broker_offset=10, consumer_offset=5, last_timestamp=9)}
    assert LockRequest.decode(vectors["LockRequest"]).mq_set == [QUEUE]


def test_quoted_keys_for_those_who_ask() -> None:
    route = TopicRoute(broker_datas=[BrokerData(broker_name="b", broker_addrs={0: "1.1.1.1:1"})])
    assert b'{"0":"1.1.1.1:1"}' in route.encode(standard=True)
    assert b'{0:"1.1.1.1:1"}' in route.encode()
    assert TopicRoute.decode(route.encode(standard=True)) == route


def test_nulls_mean_the_default() -> None:
    assert ClusterInfo.decode(b'{"brokerAddrTable":null,"clusterAddrTable":{"c":["a"]}}') == ClusterInfo(
        cluster_addr_table={"c": ["a"]}
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "JSON"),
        (b"[]", "Members"),
        (b'{"consumerIdList":3}', "consumerIdList"),
        (b'{"consumerIdList":[{}]}', "consumerIdList"),
        (b"\xff", "JSON"),
    ],
)
def test_errors_name_the_body_and_the_place(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        Members.decode(data)


def test_a_version_goes_on() -> None:
    assert DataVersion(counter=3).next(17) == DataVersion(counter=4, timestamp=17)
