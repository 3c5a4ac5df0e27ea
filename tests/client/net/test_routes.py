import asyncio

import pytest

from evenq.client.net.routes import NameServers, Route, Routes
from evenq.errors import ConnectError, TopicNotFound
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


def test_a_topic_to_be_made_keeps_the_default_route_until_a_refresh() -> None:
    default = answer(("a", {0: "a:1"}, 8, 8, 7), ("b", {0: "b:1"}, 8, 8, 7))
    made: dict[str, TopicRoute] = {"TBW102": default}

    class FakeNameServers(NameServers):
        def __init__(self) -> None: ...

        async def route(self, topic: str) -> TopicRoute:
            if topic not in made:
                raise TopicNotFound("namesrv:1", "route", 17, f"no topic {topic}")
            return made[topic]

    async def scenario() -> None:
        routes = Routes(FakeNameServers())
        changes: list[Route] = []
        routes.on_change.append(lambda old, new: changes.append(new))
        both = [f"{broker}:{n}" for broker in "ab" for n in range(2)]
        assert names((await routes.get_for_send("new", 2)).writable.queues) == both
        made["new"] = answer(("a", {0: "a:1"}, 2, 2, 6))
        assert names((await routes.get_for_send("new", 2)).writable.queues) == both
        assert [names(route.writable.queues) for route in changes] == [both]
        await routes.refresh_all()
        assert names((await routes.get_for_send("new", 2)).writable.queues) == ["a:0", "a:1"]

    asyncio.run(scenario())


def test_an_ordered_topic_has_a_fixed_layout() -> None:
    route = Route.of("t", answer(("a", {0: "a:1"}, 8, 8, 6), order="a:2;b:1"))
    assert names(route.writable.queues) == ["a:0", "a:1", "b:0"]


@pytest.mark.parametrize("order", ["a:x", "a", "a:1;:2", "a:1,b:2"])
def test_a_layout_that_cannot_be_read_is_ignored(order: str, caplog: pytest.LogCaptureFixture) -> None:
    route = Route.of("t", answer(("a", {0: "a:1"}, 2, 2, 6), order=order))
    assert names(route.writable.queues) == ["a:0", "a:1"]
    assert repr(order) in caplog.text
