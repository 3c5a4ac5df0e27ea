import pytest

from evenq.broker.routes import BrokerId, RouteTable
from evenq.errors import StateError
from evenq.protocol.bodies import DataVersion, TopicConfig

A = BrokerId("DefaultCluster", "broker-a", "127.0.0.1:1001")
B = BrokerId("DefaultCluster", "broker-b", "127.0.0.1:1002")
REPLICA = BrokerId("DefaultCluster", "broker-a", "127.0.0.1:1003", 1)


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def table(now: list[float]) -> RouteTable[str]:
    return RouteTable(lambda: now[0])


def topic(name: str, queues: int = 4, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def register(
    table: RouteTable[str], broker: BrokerId, *topics: TopicConfig, channel: str = "", version: int = 1
) -> None:
    table.register(broker, topics, DataVersion(counter=version), channel or broker.address)


def test_a_route_names_all_brokers_of_a_topic_in_order(table: RouteTable[str]) -> None:
    register(table, B, topic("orders", 2))
    register(table, A, topic("orders", 8), topic("bills"))
    route = table.route("orders")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["broker-a", "broker-b"]
    assert [(data.broker_name, data.write_queue_nums) for data in route.queue_datas] == [
        ("broker-a", 8),
        ("broker-b", 2),
    ]
    assert table.route("nothing") is None
    assert table.topics() == ["bills", "orders"]


def test_a_changed_topic_replaces_the_old_one(table: RouteTable[str]) -> None:
    register(table, A, topic("orders", 2))
    register(table, A, topic("orders", 6, perm=4), version=2)
    route = table.route("orders")
    assert route is not None
    assert [(data.write_queue_nums, data.perm) for data in route.queue_datas] == [(6, 4)]


@pytest.mark.parametrize("way", ["unregister", "close", "silence"])
def test_a_broker_that_is_gone_takes_its_queues_along(table: RouteTable[str], now: list[float], way: str) -> None:
    register(table, A, topic("orders"), topic("bills"))
    register(table, B, topic("orders"))
    if way == "unregister":
        table.unregister(A)
    elif way == "close":
        assert table.lose(A.address) == [A]
    else:
        now[0] += 120
        assert table.expire() == []
        register(table, B, topic("orders"))
        now[0] += 1
        assert table.expire() == [A]
    route = table.route("orders")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["broker-b"]
    assert table.route("bills") is None
    assert list(table.clusters().broker_addr_table) == ["broker-b"]


def test_a_sign_of_life_is_enough(table: RouteTable[str], now: list[float]) -> None:
    register(table, A, topic("orders"))
    now[0] += 119
    table.heard(A.cluster, A.address)
    now[0] += 119
    assert table.expire() == []


MOVED = BrokerId(A.cluster, A.name, "127.0.0.1:2001")
RENAMED = BrokerId(A.cluster, "broker-x", A.address)


@pytest.mark.parametrize("rival", [MOVED, RENAMED, BrokerId("Other", A.name, "127.0.0.1:2001")])
def test_a_broker_that_is_there_keeps_its_place(table: RouteTable[str], rival: BrokerId) -> None:
    register(table, A, topic("orders"))
    with pytest.raises(StateError, match=r"broker-a .* is there already; stop that one, or choose another name"):
        register(table, rival, topic("orders"), channel="rival")
    route = table.route("orders")
    assert route is not None
    assert [data.broker_addrs for data in route.broker_datas] == [{0: A.address}]


@pytest.mark.parametrize("way", ["unregister", "close", "silence", "same connection"])
@pytest.mark.parametrize("after", [MOVED, RENAMED], ids=["moved", "renamed"])
def test_a_broker_that_comes_back_elsewhere_is_there_once(
    table: RouteTable[str], now: list[float], way: str, after: BrokerId
) -> None:
    register(table, A, topic("orders"))
    match way:
        case "unregister":
            table.unregister(A)
        case "close":
            table.lose(A.address)
        case "silence":
            now[0] += 121
    register(table, after, topic("orders"), channel=A.address if way == "same connection" else "new")
    route = table.route("orders")
    assert route is not None
    assert [(data.broker_name, data.broker_addrs) for data in route.broker_datas] == [(after.name, {0: after.address})]


def test_a_permission_that_was_taken_stays_so_until_topics_change(table: RouteTable[str]) -> None:
    def perms() -> list[int]:
        route = table.route("orders")
        assert route is not None
        return [data.perm for data in route.queue_datas]

    register(table, A, topic("orders"))
    table.set_write("broker-a", False)
    register(table, A, topic("orders"), channel="again")
    assert perms() == [4]
    register(table, A, topic("orders"), version=2)
    assert perms() == [6]


def test_a_topic_that_was_forgotten_comes_back_with_its_broker(table: RouteTable[str]) -> None:
    register(table, A, topic("orders"))
    table.delete_topic("orders")
    register(table, A, topic("orders"))
    assert table.route("orders") is not None


def test_a_replica_adds_an_address_and_no_topics(table: RouteTable[str]) -> None:
    register(table, A, topic("orders"))
    register(table, REPLICA, topic("only-there"))
    route = table.route("orders")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: A.address, 1: REPLICA.address}
    assert table.route("only-there") is None
    table.unregister(A)
    assert table.route("orders") is not None


def test_clusters_and_their_topics(table: RouteTable[str]) -> None:
    other = BrokerId("Other", "broker-x", "127.0.0.1:3000")
    register(table, A, topic("orders"))
    register(table, other, topic("bills"))
    assert table.clusters().cluster_addr_table == {"DefaultCluster": ["broker-a"], "Other": ["broker-x"]}
    assert table.topics("Other") == ["bills"]


def test_write_permission_is_taken_and_given(table: RouteTable[str]) -> None:
    register(table, A, topic("orders"), topic("bills"))
    register(table, B, topic("orders"))

    def perms() -> list[int]:
        route = table.route("orders")
        assert route is not None
        return [data.perm for data in route.queue_datas]

    assert table.set_write("broker-a", False) == 2
    assert perms() == [4, 6]
    assert table.set_write("broker-a", True) == 2
    assert perms() == [6, 6]


def test_versions_are_remembered(table: RouteTable[str]) -> None:
    assert table.version(A.cluster, A.address) is None
    register(table, A)
    assert table.version(A.cluster, A.address) == DataVersion(counter=1)


def test_a_deleted_topic_has_no_route(table: RouteTable[str]) -> None:
    register(table, A, topic("orders"))
    table.delete_topic("orders")
    assert table.route("orders") is None
