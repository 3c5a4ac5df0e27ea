"""Routes are asked for again: at their interval, and at once when a broker says that they are old."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenq import Intervals, Message, Producer
from evenq.protocol import RequestCode, ResponseCode
from evenq.protocol.headers import CreateTopic
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import ask, create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live

# less than the interval of routes
SOON_S = 20.0


@pytest.fixture
def running() -> Iterator[EmbeddedCluster]:
    with cluster(brokers=2) as running:
        yield running


def test_a_route_is_asked_for_again_at_its_interval(running: EmbeddedCluster, topic: str) -> None:
    create_topic(running.namesrv, topic, queues=1)
    with Producer(running.namesrv, intervals=Intervals(routes=0.05)) as producer:
        assert {producer.send(Message(topic, b"x")).queue.queue_id for _ in range(8)} == {0}
        create_topic(running.namesrv, topic, queues=3)

        def used() -> set[int]:
            return {producer.send(Message(topic, b"x")).queue.queue_id for _ in range(12)}

        wait_until(lambda: used() == {0, 1, 2}, "sends to the new queues", SOON_S)


def test_a_broker_that_takes_no_more_is_left_out_at_once(running: EmbeddedCluster, topic: str) -> None:
    create_topic(running.namesrv, topic, queues=2)
    with Producer(running.namesrv) as producer:
        assert {producer.send(Message(topic, b"x")).queue.broker for _ in range(8)} == {"broker-a", "broker-b"}
        header = CreateTopic(topic=topic, read_queue_nums=2, write_queue_nums=2, perm=4)
        address = running.brokers["broker-a"].address
        assert ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.SUCCESS

        def writable() -> set[str]:
            # a refusal costs a retry, and no send
            assert producer.send(Message(topic, b"x")).queue.broker == "broker-b"
            route = producer._inner._session.routes.known(topic)
            return {queue.broker for queue in route.writable.queues} if route is not None else set()

        wait_until(lambda: writable() == {"broker-b"}, "a route without the broker", SOON_S)
