"""How often a message is tried, where a retry may go, and when a broker that was lost is used again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import evenq
from evenq import HashSelector, Intervals, Message, MessageQueue, Producer, SendFailed, SendTimeout, Timeouts
from evenq.client.produce import producer as producer_module
from evenq.client.produce.sending import Tries
from evenq.errors import NoPermission, RefusedError, TopicNotFound
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import Clock, EmbeddedCluster
from tests.clusters import create_topic
from tests.waiting import wait_until

SEND, BEAT = RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT


def watch_sends(cluster: EmbeddedCluster) -> list[str]:
    """The bodies of all sends that the brokers get from now on."""
    bodies: list[str] = []

    def note(request: Command) -> bool:
        bodies.append(request.body.decode())
        return False

    for broker in cluster.brokers.values():
        broker.faults.add(SEND, when=note)
    return bodies


def refuse(cluster: EmbeddedCluster, *brokers: str) -> None:
    for name in brokers or cluster.brokers:
        cluster.brokers[name].faults.add(SEND, error=ResponseCode.SYSTEM_BUSY)


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_send_is_tried_once_and_so_many_times_more(own_cluster: EmbeddedCluster, topic: str, retries: int) -> None:
    create_topic(own_cluster.namesrv, topic)
    bodies = watch_sends(own_cluster)
    refuse(own_cluster)

    async def send_async(producer: evenq.aio.Producer) -> None:
        await producer.send_async(Message(topic, b"async"))

    async def send(producer: evenq.aio.Producer) -> None:
        await producer.send(Message(topic, b"sync"))

    async def scenario(act: Callable[[evenq.aio.Producer], Awaitable[None]]) -> None:
        async with evenq.aio.Producer(own_cluster.namesrv, retries=retries) as producer:
            with pytest.raises(SendFailed) as caught:
                await act(producer)
            assert len(caught.value.attempts) == 1 + retries

    asyncio.run(scenario(send_async))
    asyncio.run(scenario(send))
    assert Counter(bodies) == {"async": 1 + retries, "sync": 1 + retries}


def test_by_default_a_send_is_tried_three_times(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    refuse(own_cluster)
    with Producer(own_cluster.namesrv) as producer:
        for send in (producer.send, lambda message: producer.send_async(message).result(20)):
            with pytest.raises(SendFailed) as caught:
                send(Message(topic, b"x"))
            assert len(caught.value.attempts) == 3


def test_a_oneway_message_is_tried_once(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    bodies = watch_sends(own_cluster)
    refuse(own_cluster)
    with Producer(own_cluster.namesrv) as producer:
        producer.send_oneway(Message(topic, b"oneway"))
        wait_until(lambda: bodies, "the request")
        # behind it, and three times
        with pytest.raises(SendFailed):
            producer.send(Message(topic, b"behind"))
    assert bodies == ["oneway"] + ["behind"] * 3


def first_of_broker_a(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    return next(queue for queue in queues if queue.broker == "broker-a")


@pytest.mark.parametrize("bound", ["queue", "selector", "sharding key"])
def test_a_retry_does_not_move_a_message_with_a_queue_of_its_own(
    own_cluster: EmbeddedCluster, topic: str, bound: str
) -> None:
    create_topic(own_cluster.namesrv, topic)
    queues = [MessageQueue(topic, broker, number) for broker in ("broker-a", "broker-b") for number in range(4)]
    key = next(
        str(number)
        for number in range(100)
        if HashSelector().select(queues, Message(topic, b"x"), str(number)).broker == "broker-a"
    )
    bindings: dict[str, dict[str, Any]] = {
        "queue": {"queue": queues[0]},
        "selector": {"selector": first_of_broker_a},
        "sharding key": {},
    }
    settings = bindings[bound]
    message = Message(topic, b"x", sharding_key=key if bound == "sharding key" else None)
    with Producer(own_cluster.namesrv) as producer:
        stored = producer.send(message, **settings)
        assert stored.queue.broker == "broker-a"
        refuse(own_cluster, "broker-a")
        with pytest.raises(SendFailed) as caught:
            producer.send(message, **settings)
        assert [attempt.broker for attempt in caught.value.attempts] == ["broker-a"] * 3
        own_cluster.brokers["broker-a"].faults.clear()
        assert producer.send(message, **settings).queue == stored.queue


@pytest.mark.parametrize(
    ("error", "fresh"),
    [
        (TopicNotFound("a:1", "SEND", ResponseCode.TOPIC_NOT_EXIST, "no topic"), 1),
        (NoPermission("a:1", "SEND", ResponseCode.NO_PERMISSION, "read only"), 1),
        (RefusedError("a:1", "SEND", ResponseCode.SYSTEM_BUSY, "busy"), 0),
    ],
    ids=["no topic", "no permission", "busy"],
)
def test_a_refusal_that_tells_of_an_old_route_asks_for_a_new_one(error: RefusedError, fresh: int) -> None:
    class Choice:
        def choose(self, last_broker: str | None) -> MessageQueue:
            return MessageQueue("t", "b" if last_broker else "a", 0)

        def record(self, broker: str, latency_ms: float, *, failed: bool, reachable: bool) -> None: ...

    outcomes: list[Exception | str] = [error, "stored"]
    asked: list[int] = []

    async def attempt(queue: MessageQueue, left: float) -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def stale() -> None:
        asked.append(len(outcomes))

    assert asyncio.run(Tries("t", 3, 3.0).run(Choice(), attempt, stale)) == "stored"
    # before the next attempt
    assert asked == [1] * fresh


def test_an_unreachable_broker_is_used_again_when_it_answers_a_probe(
    own_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "PROBE_EVERY", 0.02)
    create_topic(own_cluster.namesrv, topic)
    clock = Clock()
    faults = own_cluster.brokers["broker-a"].faults
    settings: dict[str, Any] = {
        "timeouts": Timeouts(request=0.2),
        # so that each heartbeat is a probe
        "intervals": Intervals(heartbeat=600),
        "clock": clock.now,
    }

    def used(producer: Producer) -> set[str]:
        return {producer.send(Message(topic, b"x")).queue.broker for _ in range(16)}

    with Producer(own_cluster.namesrv, send_latency_fault="v5", **settings) as producer:
        assert used(producer) == {"broker-a", "broker-b"}
        probes: list[int] = []

        def note(request: Command) -> bool:
            probes.append(request.code)
            return True

        faults.add(SEND, drop=True)
        faults.add(BEAT, drop=True, when=note)
        lost: list[SendTimeout] = []
        while not lost:
            try:
                producer.send(Message(topic, b"x"), timeout=0.3)
            except SendTimeout as error:
                lost.append(error)
        assert [attempt.broker for attempt in lost[0].attempts] == ["broker-a"]
        # the isolation is over, but no probe was answered
        clock.advance(60)
        wait_until(lambda: probes, "a probe", 20)
        assert used(producer) == {"broker-b"}
        faults.clear()
        clock.advance(60)
        wait_until(lambda: "broker-a" in used(producer), "the broker that answers again", 30)
