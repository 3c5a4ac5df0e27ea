import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    RegisterBody,
    Subscription,
    TimeSpans,
    TopicConfig,
    TopicRoute,
)
from tests.protocol.cases import load, mutations

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


# a broker with compressedRegister=true: two topics
PACKED = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d0512a2e492c490d4b2d2acecccf030b9464e6a60205730b94ac0ccd0d10a0968181810988a5f28b"
    "5280ca154c142c14cc14823dfddc7d5ce3431cdd15aa412a8c429cc20d0d8c8072160ae628b24ada40738b13d353f54a2a0b5295ac94fcfc837c"
    "1d7d94c0e646c702490600491628cb"
)


def test_a_packed_registration() -> None:
    wrapper = RegisterBody.unpack(PACKED).topic_config_serialize_wrapper
    assert wrapper.data_version.timestamp == 1_700_000_000_000
    assert wrapper.topic_config_table == {
        "orders": TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=8, perm=6),
        "TBW102": TopicConfig(
            topic_name="TBW102",
            read_queue_nums=8,
            write_queue_nums=8,
            perm=7,
            attributes={"+message.type": "NORMAL"},
        ),
    }


@given(mutations(st.just(zlib.decompress(PACKED))))
def test_a_damaged_registration_is_a_protocol_error(data: bytes) -> None:
    with suppress(ProtocolError):
        RegisterBody.unpack(zlib.compress(data))
