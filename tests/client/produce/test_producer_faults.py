"""What a producer makes of brokers that die, answer late, refuse or fall silent, in the middle of traffic."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

import evenq
from evenq import Message, Producer, SendResult
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import AnyCluster, create_topic
from tests.realmq import RealCluster, Unavailable

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.interop)])
def two_brokers(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    if request.param == "embedded":
        with cluster(brokers=2) as embedded:
            yield embedded
    else:
        try:
            real = RealCluster(brokers=2)
        except Unavailable as reason:
            pytest.skip(str(reason))
        with real:
            yield real


@pytest.fixture
def mortal(two_brokers: AnyCluster) -> Iterator[AnyCluster]:
    """A cluster whose ``broker-a`` may be killed: it is brought back to life."""
    yield two_brokers
    if "broker-a" not in two_brokers.brokers:
        two_brokers.start_broker("broker-a")


@pytest.mark.live
@pytest.mark.parametrize("faults", [False, "classic", "v5"])
def test_no_send_fails_as_long_as_one_broker_lives(
    mortal: AnyCluster, topic: str, faults: evenq.balance.FaultPreset | bool
) -> None:
    create_topic(mortal.namesrv, topic)
    kill = mortal.kill_broker if isinstance(mortal, RealCluster) else mortal.stop_broker

    async def scenario() -> list[SendResult]:
        receipts: list[SendResult] = []
        stop = asyncio.Event()

        async def keep_sending(producer: evenq.aio.Producer) -> None:
            while not stop.is_set():
                receipts.append(await producer.send(Message(topic, b"x")))

        async def reach(count: int) -> None:
            async with asyncio.timeout(60):
                while len(receipts) < count:
                    await asyncio.sleep(0.01)

        async with evenq.aio.Producer(mortal.namesrv, send_latency_fault=faults) as producer:  # type: ignore[arg-type]
            workers = [asyncio.create_task(keep_sending(producer)) for _ in range(20)]
            await reach(500)
            await asyncio.to_thread(kill, "broker-a")
            await reach(len(receipts) + 2000)
            stop.set()
            await asyncio.gather(*workers)
        return receipts

    receipts = asyncio.run(scenario())
    assert all(receipt.ok for receipt in receipts)
    assert {receipt.queue.broker for receipt in receipts[-1000:]} == {"broker-b"}


@pytest.mark.parametrize("preset", ["classic", "v5"])
def test_a_slow_broker_is_left_alone_after_its_first_message(
    own_cluster: EmbeddedCluster, topic: str, preset: evenq.balance.FaultPreset
) -> None:
    create_topic(own_cluster.namesrv, topic)
    own_cluster.brokers["broker-a"].faults.add(SEND, delay=0.6)
    with Producer(own_cluster.namesrv, send_latency_fault=preset) as producer:
        brokers: list[str] = []
        while "broker-a" not in brokers:
            brokers.append(producer.send(Message(topic, b"x")).queue.broker)
        after = Counter(producer.send(Message(topic, b"x")).queue.broker for _ in range(500))
    assert after["broker-a"] < 0.02 * 500


def test_without_fault_avoidance_a_slow_broker_keeps_its_share(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    own_cluster.brokers["broker-a"].faults.add(SEND, delay=0.1)
    with Producer(own_cluster.namesrv) as producer:
        found = Counter(producer.send(Message(topic, b"x")).queue.broker for _ in range(16))
    assert found == {"broker-a": 8, "broker-b": 8}


@pytest.mark.parametrize("fault", ["silent", "mute", "slow", "busy"])
@pytest.mark.parametrize("timeout", [0.1, 0.5])
def test_a_send_never_takes_longer_than_its_timeout(
    own_cluster: EmbeddedCluster, topic: str, fault: str, timeout: float
) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario() -> None:
        async with evenq.aio.Producer(own_cluster.namesrv) as producer:
            await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(8)))
            for broker in own_cluster.brokers.values():
                match fault:
                    case "silent":
                        broker.faults.add(SEND, drop=True)
                    case "mute":
                        broker.faults.add(SEND, mute=True)
                    case "slow":
                        broker.faults.add(SEND, delay=timeout * 0.7, error=ResponseCode.SYSTEM_BUSY)
                    case "busy":
                        broker.faults.add(SEND, error=ResponseCode.SYSTEM_BUSY)

            async def one() -> float:
                began = time.monotonic()
                with pytest.raises(evenq.SendFailed) as caught:
                    await producer.send(Message(topic, b"x"), timeout=timeout)
                assert caught.value.attempts
                # fifty sends of three refused attempts each may use their time up too, on a slow machine
                assert isinstance(caught.value, TimeoutError) or fault == "busy"
                return time.monotonic() - began

            took = await asyncio.gather(*(one() for _ in range(50)))
            # much more than the 50 ms that it takes on a machine that does nothing else
            assert max(took) < timeout + 3
            for broker in own_cluster.brokers.values():
                broker.faults.clear()

    asyncio.run(scenario())


def test_a_broker_that_comes_back_is_used_again(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv) as producer:
        for _ in range(8):
            producer.send(Message(topic, b"x"))
        own_cluster.stop_broker("broker-a")
        assert {producer.send(Message(topic, b"x")).queue.broker for _ in range(16)} == {"broker-b"}
        own_cluster.start_broker("broker-a")
        producer._wait(producer._inner._session.routes.refresh(topic))
        deadline = time.monotonic() + 20
        while producer.send(Message(topic, b"x")).queue.broker != "broker-a":
            assert time.monotonic() < deadline


def test_refusals_by_request_code_move_a_send_on(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv) as producer:
        for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION):
            own_cluster.brokers["broker-a"].faults.add(SEND, error=code)
            assert {producer.send(Message(topic, b"x")).queue.broker for _ in range(8)} == {"broker-b"}
            own_cluster.brokers["broker-a"].faults.clear()

        # but not one that every broker would repeat
        own_cluster.brokers["broker-a"].faults.add(SEND, error=ResponseCode.MESSAGE_ILLEGAL, remark="too long")
        sends = [producer.send_async(Message(topic, b"x")) for _ in range(8)]
        refusals = [error for send in sends if (error := send.exception()) is not None]
        assert [type(error) for error in refusals] == [evenq.RefusedError] * 4
        assert "too long" in str(refusals[0])
