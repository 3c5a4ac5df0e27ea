import asyncio

import pytest

from evenq.client.net.routes import NameServers, Route, Routes
from evenq.errors import ConnectError, ProtocolError, TopicNotFound
from evenq.model import MessageQueue
from evenq.protocol.bodies import BrokerData, QueueData, TopicRoute


def answer(*brokers: tuple[str, dict[int, str], int, int, int], order: str | None = None) -> TopicRoute:
    return TopicRoute(
        broker_datas=[BrokerData(broker_name=name, broker_addrs=ids) for name, ids, *_ in brokers],
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
            for name, _, read, write, perm in brokers
        ],
        order_topic_conf=order,
    )


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker}:{queue.queue_id}" for queue in queues]


def test_queues_come_by_broker_in_order_and_by_permission() -> None:
    route = Route.of(
        "t",
        answer(
            ("b", {0: "b:1"}, 2, 1, 6),
            ("a", {0: "a:1"}, 1, 2, 6),
            ("read-only", {0: "r:1"}, 1, 1, 4),
            ("write-only", {0: "w:1"}, 1, 1, 2),
        ),
    )
    assert names(route.writable.queues) == ["a:0", "a:1", "b:0", "write-only:0"]
    assert names(route.readable) == ["a:0", "b:0", "b:1", "read-only:0"]


def test_a_broker_without_a_master_is_read_but_not_written() -> None:
    route = Route.of("t", answer(("a", {1: "replica:1"}, 1, 1, 6)))
    assert names(route.writable.queues) == []
    assert names(route.readable) == ["a:0"]
    assert route.address("a") == "replica:1"
    assert route.masters == {}


def test_replicas_come_with_the_wanted_one_and_the_master_first() -> None:
    route = Route.of("t", answer(("a", {2: "a:3", 1: "a:2", 0: "a:1"}, 1, 1, 6), ("b", {3: "b:4", 2: "b:3"}, 1, 1, 6)))
    assert route.replicas("a") == ["a:1", "a:2", "a:3"]
    assert route.replicas("a", 2) == ["a:3", "a:1", "a:2"]
    assert route.replicas("b") == route.replicas("b", 1) == ["b:3", "b:4"]
    assert (route.address("a"), route.address("a", 1), route.address("b", 1)) == ("a:1", "a:2", "b:3")
    assert route.all_addresses == {"a:1", "a:2", "a:3", "b:3", "b:4"}
    with pytest.raises(ConnectError, match="no such broker"):
        route.replicas("c")


def test_a_topic_to_be_made_gets_no_more_queues_than_asked_for() -> None:
    route = Route.of("new", answer(("a", {0: "a:1"}, 8, 8, 7)), queues_at_most=4)
    assert names(route.writable.queues) == [f"a:{n}" for n in range(4)]


class FakeNameServers(NameServers):
    """Knows the routes that the test puts into ``made``."""

    def __init__(self, **made: TopicRoute) -> None:
        self.made = made

    async def route(self, topic: str) -> TopicRoute:
        if topic not in self.made:
            raise TopicNotFound("namesrv:1", "route", 17, f"no topic {topic}")
        return self.made[topic]


BOTH = [f"{broker}:{n}" for broker in "ab" for n in range(2)]
DEFAULT_OF_TWO = answer(("a", {0: "a:1"}, 8, 8, 7), ("b", {0: "b:1"}, 8, 8, 7))
ON_A = answer(("a", {0: "a:1"}, 2, 2, 6))


def test_brokers_are_used_until_they_have_a_new_topic() -> None:
    async def scenario() -> None:
        servers = FakeNameServers(TBW102=DEFAULT_OF_TWO)
        routes = Routes(servers)
        changes: list[Route] = []
        routes.on_change.append(lambda old, new: changes.append(new))
        assert names((await routes.get_for_send("new", 2)).writable.queues) == BOTH
        servers.made["new"] = ON_A
        for _ in range(3):
            await routes.refresh_all()
            route = await routes.get_for_send("new", 2)
            assert names(route.writable.queues) == BOTH
            assert route.masters == {"a": "a:1", "b": "b:1"}
        servers.made["new"] = answer(("a", {0: "a:1"}, 2, 2, 6), ("b", {0: "b:1"}, 2, 2, 6))
        await routes.refresh_all()
        assert not (await routes.get("new")).provisional
        servers.made["new"] = ON_A
        await routes.refresh_all()
        assert [names(route.writable.queues) for route in changes] == [BOTH, BOTH, ["a:0", "a:1"]]

    asyncio.run(scenario())


@pytest.mark.parametrize("default", [ON_A, None], ids=["left the cluster", "creates no topics"])
def test_brokers_that_create_no_topics_are_not_waited_for(default: TopicRoute | None) -> None:
    async def scenario() -> list[str]:
        servers = FakeNameServers(TBW102=DEFAULT_OF_TWO)
        routes = Routes(servers)
        await routes.get_for_send("new", 2)
        servers.made = {"new": ON_A} | ({"TBW102": default} if default is not None else {})
        await routes.refresh_all()
        return names((await routes.get("new")).writable.queues)

    assert asyncio.run(scenario()) == ["a:0", "a:1"]


def test_a_broker_that_never_creates_the_topic_is_left_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[str]:
        servers = FakeNameServers(TBW102=DEFAULT_OF_TWO)
        routes = Routes(servers)
        monkeypatch.setattr("evenq.client.net.routes.CREATION_S", 0.0)
        await routes.get_for_send("new", 2)
        servers.made["new"] = ON_A
        await routes.refresh_all()
        return names((await routes.get("new")).writable.queues)

    assert asyncio.run(scenario()) == ["a:0", "a:1"]


def test_a_route_that_cannot_be_refreshed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Away(FakeNameServers):
        away = False

        async def route(self, topic: str) -> TopicRoute:
            if self.away:
                raise ConnectError("namesrv:1", "refused")
            return await super().route(topic)

    async def scenario() -> None:
        servers = Away(t=ON_A)
        routes = Routes(servers)
        await routes.get("t")
        servers.away = True
        for _ in range(5):
            await routes.refresh_all()
        servers.away = False
        await routes.refresh_all()

    asyncio.run(scenario())
    assert [record.getMessage().split(" failed")[0] for record in caplog.records] == [
        "refresh of the route of topic t",
        "refresh of the route of topic t works again after 5 failures",
    ]


def test_an_ordered_topic_has_a_fixed_layout() -> None:
    route = Route.of("t", answer(("a", {0: "a:1"}, 8, 8, 6), order="a:2;b:1"))
    assert names(route.writable.queues) == ["a:0", "a:1", "b:0"]


@pytest.mark.parametrize("order", ["a:x", "a", "a:1;:2", "a:1,b:2"])
def test_a_layout_that_cannot_be_read_is_ignored(order: str, caplog: pytest.LogCaptureFixture) -> None:
    route = Route.of("t", answer(("a", {0: "a:1"}, 2, 2, 6), order=order))
    assert names(route.writable.queues) == ["a:0", "a:1"]
    assert repr(order) in caplog.text


@pytest.mark.parametrize("order", [None, "b:2147483647", "b:1;" * 300_000], ids=["plain", "ordered", "many brokers"])
def test_a_route_with_more_queues_than_any_topic_has_is_refused_at_once(order: str | None) -> None:
    with pytest.raises(ProtocolError, match=r"'t' with [0-9]+ queues; at most 262144 are read"):
        Route.of("t", answer(("b", {0: "b:1"}, 2**31 - 1, 2**31 - 1, 6), order=order))


def test_a_route_that_cannot_be_made_does_not_keep_others_from_being_refreshed() -> None:
    class Broken(NameServers):
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def route(self, topic: str) -> TopicRoute:
            self.asked.append(topic)
            if topic == "broken" and self.asked.count(topic) > 1:
                raise ValueError("unexpected")
            return answer(("b", {0: "b:1"}, 1, 1, 6))

    async def scenario() -> None:
        servers = Broken()
        routes = Routes(servers)
        for topic in ("broken", "sound"):
            await routes.get(topic)
        with pytest.raises(ValueError, match="unexpected"):
            await routes.refresh_all()
        assert servers.asked.count("sound") == 2

    asyncio.run(scenario())
