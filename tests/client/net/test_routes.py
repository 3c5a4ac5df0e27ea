from evenq.client.net.routes import Route
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


def test_a_topic_to_be_made_gets_no_more_queues_than_asked_for() -> None:
    route = Route.of("new", answer(("a", {0: "a:1"}, 8, 8, 7)), queues_at_most=4)
    assert names(route.writable.queues) == [f"a:{n}" for n in range(4)]


def test_an_ordered_topic_has_a_fixed_layout() -> None:
    route = Route.of("t", answer(("a", {0: "a:1"}, 8, 8, 6), order="a:2;b:1"))
    assert names(route.writable.queues) == ["a:0", "a:1", "b:0"]
