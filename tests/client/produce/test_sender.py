"""The two ways of a parcel, on both brokers; what a broker does wrong is injected into an embedded one."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from evenq import ArgumentError, Message, MessageQueue, SendInterrupted, SendResult, SendStatus, SendTimeout, StateError
from evenq.aio import Producer
from evenq.client.net.connection import WINDOW
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import EmbeddedCluster
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

SEND = RequestCode.SEND_MESSAGE_V2


def run(namesrv: str, scenario: Callable[[Producer], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def whole() -> None:
        async with Producer(namesrv, **settings) as producer:
            await asyncio.wait_for(scenario(producer), 60)

    asyncio.run(whole())


async def warm(producer: Producer, topic: str) -> None:
    """Know the route and be connected to both brokers."""
    await asyncio.gather(*(producer.send(Message(topic, b"warm")) for _ in range(8)))


def test_the_short_way_needs_no_task(any_cluster: AnyCluster, wide: str) -> None:
    async def scenario(producer: Producer) -> None:
        await warm(producer, wide)
        before = len(asyncio.all_tasks())
        receipts = [producer.send_async(Message(wide, b"x")) for _ in range(50)]
        assert len(asyncio.all_tasks()) == before
        assert all(receipt.ok for receipt in await asyncio.gather(*receipts))

    run(any_cluster.namesrv, scenario)


def test_more_than_a_window_at_once_is_sent_whole(any_cluster: AnyCluster, wide: str) -> None:
    queue = MessageQueue(wide, "broker-a", 1)

    async def scenario(producer: Producer) -> None:
        sends = [producer.send_async(Message(wide, b"x"), queue=queue, timeout=30) for _ in range(2 * WINDOW)]
        offsets = [receipt.offset for receipt in await asyncio.gather(*sends)]
        assert sorted(offsets) == list(range(2 * WINDOW))

    run(any_cluster.namesrv, scenario)


def test_closing_lets_end_what_was_begun(any_cluster: AnyCluster, wide: str) -> None:
    sends: list[asyncio.Future[SendResult]] = []

    async def scenario(producer: Producer) -> None:
        sends.extend(producer.send_async(Message(wide, b"x")) for _ in range(100))

    run(any_cluster.namesrv, scenario)
    assert all(send.result().ok for send in sends)


def test_flush_waits_for_what_was_begun_even_if_it_fails(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        for broker in own_cluster.brokers.values():
            broker.faults.add(SEND, error=ResponseCode.MESSAGE_ILLEGAL, times=1)
        sends = [producer.send_async(Message(topic, b"x")) for _ in range(8)]
        await producer.flush()
        assert all(send.done() for send in sends)
        assert sum(send.exception() is not None for send in sends) == 2

    run(own_cluster.namesrv, scenario)


def test_who_stops_waiting_disturbs_nobody(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        for broker in own_cluster.brokers.values():
            broker.faults.add(SEND, delay=0.1)
        impatient = [asyncio.create_task(producer.send(Message(topic, b"x"))) for _ in range(4)]
        patient = producer.send_async(Message(topic, b"x"))
        await asyncio.sleep(0.01)
        for task in impatient:
            task.cancel()
        assert (await patient).ok
        await producer.flush()

    run(own_cluster.namesrv, scenario)


def test_a_connection_that_breaks_under_a_send_costs_only_a_retry(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        own_cluster.brokers["broker-a"].faults.add(SEND, close=True)
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(40)))
        assert {receipt.queue.broker for receipt in receipts} == {"broker-b"}

    run(own_cluster.namesrv, scenario)


def test_the_route_is_asked_for_again_when_a_broker_has_gone(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        own_cluster.stop_broker("broker-a")
        async with asyncio.timeout(20):
            while producer._session.routes.masters().keys() != {"broker-b"}:
                assert (await producer.send(Message(topic, b"x"))).queue.broker == "broker-b"

    run(own_cluster.namesrv, scenario)


@pytest.mark.parametrize("known", [False, True], ids=["long way", "short way"])
def test_what_a_selector_raises_is_raised_to_the_sender(own_cluster: EmbeddedCluster, topic: str, known: bool) -> None:
    create_topic(own_cluster.namesrv, topic)

    def broken(queues: object, message: Message, arg: object) -> MessageQueue:
        raise ZeroDivisionError(arg)

    async def scenario(producer: Producer) -> None:
        if known:
            await warm(producer, topic)
        with pytest.raises(ZeroDivisionError, match="the argument"):
            await producer.send(Message(topic, b"x"), selector=broken, arg="the argument")
        await producer.flush()

    run(own_cluster.namesrv, scenario)


def test_a_silent_name_server_costs_the_timeout_and_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:

        async def scenario(producer: Producer) -> None:
            began = time.monotonic()
            with pytest.raises(SendTimeout, match=r"nothing was tried\. All of its 0\.200 s"):
                await producer.send(Message("t", b"x"), timeout=0.2)
            with pytest.raises(SendTimeout):
                await producer.send_oneway(Message("t", b"x"), timeout=0.2)
            assert time.monotonic() - began < 0.4 + 5

        run(f"127.0.0.1:{silent.getsockname()[1]}", scenario)


def test_a_oneway_message_arrives(any_cluster: AnyCluster, wide: str) -> None:
    queue = MessageQueue(wide, "broker-b", 0)

    async def scenario(producer: Producer) -> None:
        for _ in range(10):
            await producer.send_oneway(Message(wide, b"x"), queue=queue)
        # on the same connection behind them, so they are stored when it is
        assert (await producer.send(Message(wide, b"last"), queue=queue)).offset >= 0
        address = producer._session.routes.master_of("broker-b")
        remote = producer._session.remote
        async with asyncio.timeout(20):
            while await remote.max_offset(address, queue) < 11:
                await asyncio.sleep(0.01)

    run(any_cluster.namesrv, scenario)


def test_a_producer_is_known_to_brokers_as_soon_as_it_is_connected(own_cluster: EmbeddedCluster, topic: str) -> None:
    async def scenario(producer: Producer) -> None:
        receipt = await producer.send(Message(topic, b"makes the topic"))
        broker = own_cluster.brokers[receipt.queue.broker]
        await asyncio.to_thread(
            wait_until, lambda: own_cluster.call(lambda: "shop" in broker.producers.groups()), "the group at the broker"
        )

    run(own_cluster.namesrv, scenario, group="shop")


def test_after_closing_nothing_can_be_begun(own_cluster: EmbeddedCluster, topic: str) -> None:
    async def scenario() -> None:
        producer = Producer(own_cluster.namesrv)
        await producer.start()
        await producer.close()
        with pytest.raises(StateError, match="this producer is closed"):
            producer.send_async(Message(topic, b"x"))

    asyncio.run(scenario())


def test_what_cannot_be_encoded_fails_and_holds_up_neither_flush_nor_close(own_cluster: EmbeddedCluster) -> None:
    async def scenario(producer: Producer) -> None:
        await warm(producer, "orders")
        for name, value in (("tags", "\ud800"), ("keys", ("\udfff",)), ("properties", {"a": "\ud800"})):
            message = Message("orders", b"x")
            # past the constructor's checks: the sender must not depend on them
            msgspec.structs.force_setattr(message, name, value)
            with pytest.raises(ArgumentError, match="UTF-8 cannot encode this part"):
                await producer.send(message)
        with pytest.raises(ArgumentError, match="timeout='3'"):
            await producer.send(Message("orders", b"x"), timeout="3")  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await producer.flush()
        assert (await producer.send(Message("orders", b"x"))).ok

    create_topic(own_cluster.namesrv, "orders")
    run(own_cluster.namesrv, scenario)


def test_an_answer_that_cannot_be_used_fails_its_send_only(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    def observe(*told: object) -> None:
        raise KeyError("on purpose")

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        connections = dict(producer._session.connections._open)
        producer._sender.observer = observe
        with pytest.raises(KeyError, match="on purpose"):
            await asyncio.wait_for(producer.send(Message(topic, b"x")), 10)
        producer._sender.observer = None
        assert (await producer.send(Message(topic, b"x"))).ok
        assert producer._session.connections._open == connections

    run(own_cluster.namesrv, scenario)


def test_a_send_whose_task_never_begins_hears_of_the_end() -> None:
    async def scenario() -> None:
        producer = Producer("127.0.0.1:1")
        await producer.start()
        send = producer.send_async(Message("t", b"x"))
        # without a flush, as where another thread sends while the producer closes
        await producer._session.close()
        with pytest.raises(StateError, match="closed before the message was stored"):
            await asyncio.wait_for(send, 10)
        async with asyncio.timeout(10):
            await producer.close()

    asyncio.run(scenario())


def test_a_send_that_a_close_interrupts_may_have_been_stored(
    own_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(own_cluster.namesrv, topic)
    queue = MessageQueue(topic, "broker-a", 0)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        monkeypatch.setattr("evenq.client.net.connection.WINDOW", 4)
        own_cluster.brokers["broker-a"].faults.add(SEND, drop=True)
        sends = [producer.send_async(Message(topic, b"x"), queue=queue, timeout=30) for _ in range(7)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        assert not any(send.done() for send in sends), "a close waits for them"
        closing.cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [type(outcome) for outcome in outcomes] == [SendInterrupted] * 4 + [StateError] * 3
        with pytest.raises(SendInterrupted, match=r"broker-a \(\d+ ms\).*not known whether a broker stored it"):
            await sends[0]

    run(own_cluster.namesrv, scenario, coalesce=False)


def test_an_interrupted_retry_tells_of_every_try(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    queue = MessageQueue(topic, "broker-a", 0)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        faults = own_cluster.brokers["broker-a"].faults
        reached = threading.Event()

        def note(request: Command) -> bool:
            reached.set()
            return True

        faults.add(SEND, error=ResponseCode.SYSTEM_BUSY, times=1)
        faults.add(SEND, drop=True, when=note)
        send = producer.send_async(Message(topic, b"x"), queue=queue, timeout=30)
        assert await asyncio.to_thread(reached.wait, 20)
        await producer._session.close()
        with pytest.raises(SendInterrupted) as caught:
            await asyncio.wait_for(send, 10)
        assert [attempt.broker for attempt in caught.value.attempts] == ["broker-a", "broker-a"]
        assert "refused" in caught.value.attempts[0].error

    run(own_cluster.namesrv, scenario)


def test_a_producer_that_is_closing_takes_no_more_messages(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        await warm(producer, topic)
        for broker in own_cluster.brokers.values():
            broker.faults.add(SEND, delay=0.2)
        begun = producer.send_async(Message(topic, b"x"))
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        with pytest.raises(StateError, match="this producer is closed"):
            producer.send_async(Message(topic, b"x"))
        await closing
        assert begun.result().ok

    run(own_cluster.namesrv, scenario)


@pytest.mark.parametrize("known", [False, True], ids=["long way", "short way"])
@pytest.mark.parametrize("settings", [{"linger": 0.01}, {"coalesce": True}, {"coalesce": False}], ids=str)
def test_what_a_selector_raises_comes_through_the_future(
    own_cluster: EmbeddedCluster, topic: str, known: bool, settings: dict[str, Any]
) -> None:
    create_topic(own_cluster.namesrv, topic)

    def broken(queues: object, message: Message, arg: object) -> MessageQueue:
        raise ZeroDivisionError

    async def scenario(producer: Producer) -> None:
        if known:
            await warm(producer, topic)
        elsewhere = MessageQueue(topic, "broker-x", 0)
        sends = [
            producer.send_async(Message(topic, b"x"), selector=broken),
            producer.send_async(Message(topic, b"x"), queue=elsewhere),
        ]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError, ArgumentError]
        await producer.flush()

    run(own_cluster.namesrv, scenario, **settings)


def store_unsafely(cluster: EmbeddedCluster, *brokers: str) -> None:
    """Let these brokers store what is sent, and say that its disk was too slow."""
    for name in brokers:
        broker = cluster.brokers[name]
        honest = broker.answer_when_durable

        def dishonest(answer: Command, *rest: Any, honest: Any = honest) -> Any:
            answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            return honest(answer, *rest)

        broker.answer_when_durable = dishonest  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("known", [False, True], ids=["long way", "short way"])
def test_what_was_stored_unsafely_goes_to_another_broker(own_cluster: EmbeddedCluster, topic: str, known: bool) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        if known:
            await warm(producer, topic)
        store_unsafely(own_cluster, "broker-a")
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(20)))
        assert {(receipt.queue.broker, receipt.ok) for receipt in receipts} == {("broker-b", True)}
        batch = await producer.send_batch([Message(topic, b"x")] * 4)
        assert all(receipt.ok for receipt in batch)
        # whoever wants one queue does not get another
        bound = await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))
        assert bound.status is SendStatus.FLUSH_DISK_TIMEOUT

    run(own_cluster.namesrv, scenario, retry_not_ok=True)


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("known", [False, True], ids=["long way", "short way"])
def test_what_is_nowhere_stored_safely_has_a_receipt(
    own_cluster: EmbeddedCluster, topic: str, known: bool, retries: int
) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(producer: Producer) -> None:
        if known:
            await warm(producer, topic)
        store_unsafely(own_cluster, "broker-a")
        own_cluster.brokers["broker-b"].faults.add(SEND, error=ResponseCode.MESSAGE_ILLEGAL, when=lambda _: True)
        receipts = await asyncio.gather(
            *(producer.send(Message(topic, b"x")) for _ in range(8)), return_exceptions=True
        )
        stored = [receipt for receipt in receipts if isinstance(receipt, SendResult)]
        assert {(receipt.queue.broker, receipt.status) for receipt in stored} == {
            ("broker-a", SendStatus.FLUSH_DISK_TIMEOUT)
        }
        # the others went to the broker first that refuses them
        assert len(stored) == 4

    run(own_cluster.namesrv, scenario, retry_not_ok=True, retries=retries, coalesce=False)


def test_what_was_stored_unsafely_stays_there_by_default(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    store_unsafely(own_cluster, "broker-a", "broker-b")

    async def scenario(producer: Producer) -> None:
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(8)))
        assert {receipt.status for receipt in receipts} == {SendStatus.FLUSH_DISK_TIMEOUT}
        assert {receipt.queue.broker for receipt in receipts} == {"broker-a", "broker-b"}

    run(own_cluster.namesrv, scenario)
