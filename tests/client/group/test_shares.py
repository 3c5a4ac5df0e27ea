"""The shares that a strategy computes, whatever it answers, and what members then consume."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from evenq import Intervals, LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import StrategyLike, strategy
from evenq.client.group.shares import ComputedShares
from evenq.client.net.routes import Route
from evenq.protocol.bodies import BrokerData, QueueData, TopicRoute
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

INTERVALS = Intervals(rebalance=0.05)


def route(topic: str, queues: int = 2) -> Route:
    return Route.of(
        topic,
        TopicRoute(
            broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "h:1"})],
            queue_datas=[QueueData(broker_name="b", read_queue_nums=queues, write_queue_nums=queues, perm=6)],
        ),
    )


def targets(strategy: StrategyLike, *topics: str) -> dict[str, list[MessageQueue]]:
    shares = ComputedShares(strategy, "g", "m")
    return asyncio.run(shares.targets([route(topic) for topic in topics], ["m"], mixed=False))


def queues_of(topic: str, *brokers: str) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker in brokers for number in range(2)]


def test_a_share_has_only_queues_of_its_topic() -> None:
    everything = [*queues_of("orders", "b"), *queues_of("bills", "b"), *queues_of("other", "b")]
    found = targets(strategy("CONFIG", queues=everything), "orders", "bills", "%RETRY%g")
    assert found == {"orders": queues_of("orders", "b"), "bills": queues_of("bills", "b"), "%RETRY%g": []}


def test_a_queue_that_a_strategy_names_twice_counts_once() -> None:
    def twice(group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return [*queues, *queues]

    assert targets(twice, "orders") == {"orders": queues_of("orders", "b")}


def test_a_topic_whose_strategy_raises_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    def flaky(group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if queues[0].topic == "orders":
            raise KeyError("orders")
        return list(queues)

    shares = ComputedShares(flaky, "g", "m")
    routes = [route("orders"), route("bills")]
    found = [asyncio.run(shares.targets(routes, ["m"], mixed=False)) for _ in range(5)]
    assert found == [{"bills": queues_of("bills", "b")}] * 5
    assert shares.look_again_in is not None
    assert not shares.settled
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "strategy flaky of group g for topic orders failed"
    ]


def test_an_answer_without_queues_names_the_strategy(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return ["orders-0"]  # type: ignore[list-item]

    assert targets(wrong, "orders") == {}
    assert "strategy wrong of group g for topic orders failed" in caplog.text
    assert "'orders-0'" in caplog.text


class Handled:
    """What handlers were given, from all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: Counter[bytes] = Counter()

    def __call__(self, messages: list[MessageView]) -> None:
        with self._lock:
            self._bodies.update(message.body for message in messages)

    @property
    def bodies(self) -> Counter[bytes]:
        with self._lock:
            return Counter(self._bodies)


def send(namesrv: str, queues: Sequence[MessageQueue], name: bytes) -> Counter[bytes]:
    """One message to each queue; gives their bodies, once each."""
    bodies = [b"%s-%d" % (name, number) for number in range(len(queues))]
    with Producer(namesrv) as producer:
        for queue, body in zip(queues, bodies, strict=True):
            producer.send(Message(queue.topic, body), queue=queue)
    return Counter(bodies)


def wait_rounds(consumer: PushConsumer | LitePullConsumer, count: int = 5) -> None:
    """Wait until the consumer has looked at its share so many more times."""
    rebalancer = consumer._inner._member.rebalancer
    wanted = rebalancer.rounds + count
    wait_until(lambda: rebalancer.rounds >= wanted, f"{count} more looks")


def both(topic: str) -> tuple[str, str]:
    return topic, f"{topic}-b"


@pytest.fixture
def queues(embedded_cluster: AnyCluster, topic: str) -> list[MessageQueue]:
    """The queues of two topics."""
    for name in both(topic):
        create_topic(embedded_cluster.namesrv, name, queues=2)
    return [queue for name in both(topic) for queue in queues_of(name, "broker-a", "broker-b")]


def test_config_hands_each_message_to_the_handler_once(
    embedded_cluster: AnyCluster, topic: str, group: str, queues: list[MessageQueue]
) -> None:
    handled = Handled()
    config = strategy("CONFIG", queues=[*queues, *queues])
    with PushConsumer(embedded_cluster.namesrv, group, strategy=config, begin="first", intervals=INTERVALS) as consumer:
        for name in both(topic):
            consumer.subscribe(name)
        consumer.start(handled)
        wait_until(lambda: consumer.queues == queues, lambda: f"all queues: {consumer.queues}")
        readers = {holding.queue: holding.reader for holding in consumer._inner._member.holdings}
        wait_rounds(consumer)
        sent = send(embedded_cluster.namesrv, queues, b"first")
        wait_until(lambda: handled.bodies.keys() == sent.keys(), lambda: f"all messages: {handled.bodies}")
        # what came before the last messages came before them in each queue
        sent += send(embedded_cluster.namesrv, queues, b"last")
        wait_until(lambda: handled.bodies.keys() == sent.keys(), lambda: f"all messages: {handled.bodies}")
        assert {holding.queue: holding.reader for holding in consumer._inner._member.holdings} == readers
    assert handled.bodies == sent


def test_config_gives_each_message_of_two_topics_once_to_polls(
    embedded_cluster: AnyCluster, topic: str, group: str, queues: list[MessageQueue]
) -> None:
    found: Counter[bytes] = Counter()
    config = strategy("CONFIG", queues=queues)
    with LitePullConsumer(
        embedded_cluster.namesrv, group, strategy=config, begin="first", intervals=INTERVALS
    ) as consumer:
        for name in both(topic):
            consumer.subscribe(name)

        def poll(sent: Counter[bytes]) -> None:
            def all_there() -> bool:
                found.update(message.body for message in consumer.poll(0.05))
                return found.keys() == sent.keys()

            wait_until(all_there, lambda: f"all messages: {found}")

        consumer.start()
        wait_until(lambda: consumer.queues == queues, lambda: f"all queues: {consumer.queues}")
        wait_rounds(consumer)
        sent = send(embedded_cluster.namesrv, queues, b"first")
        poll(sent)
        wait_rounds(consumer)
        sent += send(embedded_cluster.namesrv, queues, b"last")
        poll(sent)
    assert found == sent
