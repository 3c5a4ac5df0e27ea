import zlib
from collections.abc import Iterator

import pytest

from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import Clock, EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.waiting import wait_until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def two_brokers(clock: Clock) -> Iterator[EmbeddedCluster]:
    with cluster(2, clock=clock.now) as running:
        yield running


@pytest.fixture
def peer(two_brokers: EmbeddedCluster) -> Iterator[Peer]:
    with Peer(two_brokers.namesrv) as connected:
        yield connected


def register(peer: Peer, name: str, topics: list[str], *, crc: int = 0) -> Command:
    table = {topic: bodies.TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4) for topic in topics}
    wrapper = bodies.TopicConfigAndMapping(topic_config_table=table)
    body = bodies.RegisterBody(topic_config_serialize_wrapper=wrapper).encode()
    header = headers.RegisterBroker(
        broker_name=name,
        broker_addr=f"10.0.0.1:{len(name)}",
        cluster_name="Other",
        broker_id=0,
        ha_server_addr="10.0.0.1:9",
        body_crc32=crc if crc else zlib.crc32(body) & 0x7FFFFFFF,
    )
    return peer.ask(RequestCode.REGISTER_BROKER, header, body)


def route(peer: Peer, topic: str) -> bodies.TopicRoute | None:
    answer = peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.RouteRequest(topic=topic))
    return bodies.TopicRoute.decode(answer.body) if answer.code == 0 else None


def test_a_route_names_the_embedded_brokers(peer: Peer, two_brokers: EmbeddedCluster) -> None:
    found = route(peer, "TBW102")
    assert found is not None
    addresses = {name: broker.address for name, broker in two_brokers.brokers.items()}
    assert {data.broker_name: data.master for data in found.broker_datas} == addresses
    assert [(data.broker_name, data.write_queue_nums, data.perm) for data in found.queue_datas] == [
        ("broker-a", 8, 7),
        ("broker-b", 8, 7),
    ]


def test_an_unknown_topic_has_no_route(peer: Peer) -> None:
    answer = peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.RouteRequest(topic="nowhere"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("No topic route info in name server for the topic: nowhere")


@pytest.mark.parametrize(("version", "key"), [(400, b'{0:"'), (401, b'{"0":"')])
def test_numbers_as_keys_are_quoted_for_clients_that_can_read_it(peer: Peer, version: int, key: bytes) -> None:
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=99, version=version, ext={"topic": "TBW102"})
    peer.socket.sendall(request.encode())
    assert key in peer.answer(99).body


def test_the_cluster_is_described(peer: Peer) -> None:
    info = bodies.ClusterInfo.decode(peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert info.cluster_addr_table["DefaultCluster"] == ["broker-a", "broker-b"]


def test_another_broker_registers_and_leaves(peer: Peer, two_brokers: EmbeddedCluster) -> None:
    with Peer(two_brokers.namesrv) as other:
        assert register(other, "broker-x", ["foreign"]).code == 0
        found = route(peer, "foreign")
        assert found is not None
        assert found.broker_datas[0].cluster == "Other"
        topics = peer.ask(RequestCode.GET_TOPICS_BY_CLUSTER, headers.ClusterTopics(cluster="Other"))
        assert bodies.TopicNames.decode(topics.body).topic_list == ["foreign"]
        leave = headers.UnregisterBroker(
            broker_name="broker-x", broker_addr="10.0.0.1:8", cluster_name="Other", broker_id=0
        )
        assert other.ask(RequestCode.UNREGISTER_BROKER, leave).code == 0
        assert route(peer, "foreign") is None


def test_a_closed_connection_takes_its_broker_along(peer: Peer, two_brokers: EmbeddedCluster) -> None:
    other = Peer(two_brokers.namesrv)
    register(other, "broker-y", ["foreign"])
    other.socket.close()
    wait_until(lambda: route(peer, "foreign") is None, "the broker being dropped")


def test_a_silent_broker_is_dropped_and_the_others_come_back(
    peer: Peer, two_brokers: EmbeddedCluster, clock: Clock
) -> None:
    with Peer(two_brokers.namesrv) as other:
        register(other, "broker-z", ["foreign"])
        clock.advance(121)
        wait_until(lambda: route(peer, "foreign") is None, "the broker being dropped")
        wait_until(lambda: (found := route(peer, "TBW102")) and len(found.broker_datas) == 2, "the others being back")


def test_a_damaged_registration_is_refused(peer: Peer) -> None:
    answer = register(peer, "broker-x", ["foreign"], crc=1)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert route(peer, "foreign") is None


def test_a_broker_asks_whether_its_topics_are_known(peer: Peer) -> None:
    register(peer, "broker-v", ["foreign"])
    header = headers.DataVersionRequest(
        broker_name="broker-v", broker_addr="10.0.0.1:8", cluster_name="Other", broker_id=0
    )

    def changed(version: bodies.DataVersion) -> bool:
        answer = peer.ask(RequestCode.QUERY_DATA_VERSION, header, version.encode())
        return headers.DataVersionResponse.from_ext(answer.ext).changed

    assert not changed(bodies.DataVersion())
    assert changed(bodies.DataVersion(counter=1))
    beat = headers.BrokerHeartbeat(cluster_name="Other", broker_addr="10.0.0.1:8", broker_name="broker-v")
    assert peer.ask(RequestCode.BROKER_HEARTBEAT, beat).code == 0


def test_topics_are_listed_and_deleted(peer: Peer) -> None:
    register(peer, "broker-w", ["foreign", "other"])
    listed = bodies.TopicNames.decode(peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body).topic_list
    assert {"foreign", "other", "TBW102"} <= set(listed)
    peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, headers.DeleteTopic(topic="foreign"))
    assert route(peer, "foreign") is None
    system = bodies.TopicNames.decode(peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert {"DefaultCluster", "broker-a"} <= set(system.topic_list)


def test_write_permission_is_taken_and_given(peer: Peer) -> None:
    register(peer, "broker-w", ["foreign"])

    def perm() -> int:
        found = route(peer, "foreign")
        assert found is not None
        return found.queue_datas[0].perm

    header = headers.BrokerNameRequest(broker_name="broker-w")
    assert peer.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header).ext == {"wipeTopicCount": "1"}
    assert perm() == 4
    assert peer.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header).ext == {"addTopicCount": "1"}
    assert perm() == 6


def test_the_addresses_behind_a_name(peer: Peer, two_brokers: EmbeddedCluster) -> None:
    request = Command(
        RequestCode.GET_BROKER_MEMBER_GROUP, opaque=77, ext={"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    )
    peer.socket.sendall(request.encode())
    members = bodies.BrokerMembersBody.decode(peer.answer(77).body).broker_member_group
    assert members.broker_addrs == {0: two_brokers.brokers["broker-a"].address}


def test_keys_and_values(peer: Peer) -> None:
    key = headers.KvKey(namespace="ORDER_TOPIC_CONFIG", key="TBW102")
    assert peer.ask(RequestCode.GET_KV_CONFIG, key).code == ResponseCode.QUERY_NOT_FOUND
    put = headers.KvPut(namespace="ORDER_TOPIC_CONFIG", key="TBW102", value="broker-a:8")
    assert peer.ask(RequestCode.PUT_KV_CONFIG, put).code == 0
    assert peer.ask(RequestCode.GET_KV_CONFIG, key).ext == {"value": "broker-a:8"}
    space = headers.KvNamespace(namespace="ORDER_TOPIC_CONFIG")
    table = bodies.KvTable.decode(peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, space).body).table
    assert table == {"TBW102": "broker-a:8"}
    found = route(peer, "TBW102")
    assert found is not None
    assert found.order_topic_conf == "broker-a:8"
    peer.ask(RequestCode.DELETE_KV_CONFIG, key)
    assert peer.ask(RequestCode.GET_KV_CONFIG, key).code == ResponseCode.QUERY_NOT_FOUND


def test_nobody_takes_the_place_of_a_broker_that_is_there(peer: Peer, two_brokers: EmbeddedCluster) -> None:
    answer = register(peer, "broker-a", ["stolen"])
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is there already; stop that one, or choose another name" in (answer.remark or "")
    found = route(peer, "TBW102")
    assert found is not None
    assert found.broker_datas[0].master == two_brokers.brokers["broker-a"].address
    assert route(peer, "stolen") is None


def test_a_permission_that_was_taken_outlives_a_registration(peer: Peer) -> None:
    register(peer, "broker-w", ["foreign"])
    header = headers.BrokerNameRequest(broker_name="broker-w")
    peer.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
    register(peer, "broker-w", ["foreign"])
    found = route(peer, "foreign")
    assert found is not None
    assert found.queue_datas[0].perm == 4
    peer.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)


def test_nobody_else_takes_a_broker_away(peer: Peer, two_brokers: EmbeddedCluster) -> None:
    address = two_brokers.brokers["broker-a"].address
    leave = headers.UnregisterBroker(
        broker_name="broker-a", broker_addr=address, cluster_name="DefaultCluster", broker_id=0
    )
    answer = peer.ask(RequestCode.UNREGISTER_BROKER, leave)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "it registered over another connection" in (answer.remark or "")
    found = route(peer, "TBW102")
    assert found is not None
    assert found.broker_datas[0].master == address
