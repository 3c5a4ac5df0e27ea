"""The producer on both brokers; what a broker does wrong is injected into an embedded one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import evenq
from evenq import HashSelector, LitePullConsumer, Message, MessageQueue, Producer
from evenq.broker import Cluster
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster
from tests.clusters import AnyCluster, create_topic, route
from tests.waiting import wait_until


def test_one_thread_goes_round_all_queues(any_cluster: AnyCluster, wide: str) -> None:
    with Producer(any_cluster.namesrv) as producer:
        receipts = [producer.send(Message(wide, b"%d" % n)) for n in range(80)]
    assert all(receipt.ok for receipt in receipts)
    assert set(Counter(receipt.queue for receipt in receipts).values()) == {10}
    brokers = [receipt.queue.broker for receipt in receipts]
    assert Counter(brokers) == {"broker-a": 40, "broker-b": 40}


def test_offsets_and_ids_tell_where_a_message_is(any_cluster: AnyCluster, wide: str) -> None:
    queue = MessageQueue(wide, "broker-b", 2)
    with Producer(any_cluster.namesrv) as producer:
        first, second = (producer.send(Message(wide, b"x"), queue=queue) for _ in range(2))
    assert (first.queue, first.offset, second.offset) == (queue, 0, 1)
    assert len({first.msg_id, second.msg_id, first.offset_msg_id, second.offset_msg_id}) == 4


def test_the_same_key_goes_to_the_same_queue(any_cluster: AnyCluster, wide: str) -> None:
    with Producer(any_cluster.namesrv) as producer:
        for key in ("o-1", "o-2", 17, True):
            queues = {producer.send(Message(wide, b"x"), selector=HashSelector(), arg=key).queue for _ in range(5)}
            assert len(queues) == 1
        chosen = producer.send(Message(wide, b"x"), selector=lambda queues, message, arg: queues[3])
        assert chosen.queue == MessageQueue(wide, "broker-a", 3)


def test_a_topic_that_does_not_exist_is_made_by_the_first_send(any_cluster: AnyCluster, topic: str) -> None:
    with Producer(any_cluster.namesrv, topic_queues=2) as producer:
        assert producer.send(Message(topic, b"first")).ok
        queues = {producer.send(Message(topic, b"next")).queue.queue_id for _ in range(8)}
    assert queues == {0, 1}


def test_a_topic_made_by_sends_is_on_all_brokers(any_cluster: AnyCluster, topic: str) -> None:
    with Producer(any_cluster.namesrv) as producer:
        receipts = [producer.send(Message(topic, b"x")) for _ in range(24)]
    assert set(Counter(receipt.queue for receipt in receipts).values()) == {3}
    assert Counter(receipt.queue.broker for receipt in receipts) == {"broker-a": 12, "broker-b": 12}
    assert route(any_cluster.namesrv, topic) == {"broker-a": 4, "broker-b": 4}


def test_a_consumer_soon_sees_a_topic_that_grows_to_the_next_broker(
    any_cluster: AnyCluster, topic: str, group: str
) -> None:
    with (
        LitePullConsumer(any_cluster.namesrv, group, begin="first") as consumer,
        Producer(any_cluster.namesrv) as producer,
    ):
        consumer.subscribe(topic)
        sent = {producer.send(Message(topic, b"%d" % n)).queue for n in range(24)}
        seen: set[MessageQueue] = set()

        def all_seen() -> bool:
            seen.update(message.queue for message in consumer.poll(timeout=0.1))
            return seen == sent

        wait_until(all_seen, "messages of all queues", 20)
    assert {queue.broker for queue in sent} == {"broker-a", "broker-b"}


def test_many_sends_at_once_from_tasks_are_even(any_cluster: AnyCluster, wide: str) -> None:
    async def scenario() -> list[evenq.SendResult]:
        async with evenq.aio.Producer(any_cluster.namesrv) as producer:
            return await asyncio.gather(*(producer.send(Message(wide, b"x")) for _ in range(800)))

    assert set(Counter(receipt.queue for receipt in asyncio.run(scenario())).values()) == {100}


def test_threads_share_a_producer_and_each_is_even(any_cluster: AnyCluster, wide: str) -> None:
    by_thread: dict[int, list[evenq.SendResult]] = {}
    with Producer(any_cluster.namesrv) as producer:

        def work(number: int) -> None:
            by_thread[number] = [producer.send(Message(wide, b"x")) for _ in range(40)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(by_thread) == 4
    for receipts in by_thread.values():
        assert set(Counter(receipt.queue for receipt in receipts).values()) == {5}


def test_a_retry_goes_to_another_broker(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    own_cluster.brokers["broker-a"].faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.SYSTEM_BUSY)
    with Producer(own_cluster.namesrv) as producer:
        receipts = [producer.send(Message(topic, b"x")) for _ in range(16)]
    assert {receipt.queue.broker for receipt in receipts} == {"broker-b"}


def test_a_send_bound_to_a_queue_is_not_moved(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    own_cluster.brokers["broker-a"].faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.SYSTEM_BUSY)
    with (
        Producer(own_cluster.namesrv) as producer,
        pytest.raises(evenq.SendFailed) as caught,
    ):
        producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))
    assert [attempt.broker for attempt in caught.value.attempts] == ["broker-a"] * 3


def test_when_everything_fails_the_error_names_each_try(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    for broker in own_cluster.brokers.values():
        broker.faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.SYSTEM_ERROR, remark="the disk is full")
    with Producer(own_cluster.namesrv) as producer, pytest.raises(evenq.SendFailed) as caught:
        producer.send(Message(topic, b"x"))
    brokers = [attempt.broker for attempt in caught.value.attempts]
    assert len(brokers) == 3
    assert brokers[0] != brokers[1] != brokers[2]
    assert str(caught.value).count("the disk is full") == 3


def test_a_send_ends_with_its_timeout(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    for broker in own_cluster.brokers.values():
        broker.faults.add(RequestCode.SEND_MESSAGE_V2, delay=30.0)
    with Producer(own_cluster.namesrv) as producer:
        began = time.monotonic()
        with pytest.raises(evenq.SendTimeout, match=r"broker-[ab] \(\d+ ms\): .*did not answer.*All of its 0\.300 s"):
            producer.send(Message(topic, b"x"), timeout=0.3)
        assert time.monotonic() - began < 5


def test_a_stopped_broker_costs_no_send(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv) as producer:
        for _ in range(8):
            producer.send(Message(topic, b"x"))
        own_cluster.stop_broker("broker-a")
        receipts = [producer.send(Message(topic, b"x")) for _ in range(16)]
    assert {receipt.queue.broker for receipt in receipts} == {"broker-b"}


def test_no_name_server_is_named(topic: str) -> None:
    with Producer("127.0.0.1:1") as producer, pytest.raises(evenq.ConnectError, match=r"no name server answers.*:1"):
        producer.send(Message(topic, b"x"))


@pytest.mark.parametrize(
    ("message", "complaint"),
    [(Message("t", b""), "at least one byte"), (Message("t", b"x" * 101), "body='101 bytes': at most 100")],
)
def test_a_message_that_no_broker_takes_is_refused_here(message: Message, complaint: str) -> None:
    with Producer("127.0.0.1:1", max_message_size=100) as producer, pytest.raises(evenq.ArgumentError, match=complaint):
        producer.send(message)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"namesrv": "localhost"}, "namesrv='localhost': give host:port"),
        ({"namesrv": "localhost:1", "group": "two words"}, "group='two words'"),
        ({"namesrv": "localhost:1", "retries": -1}, "retries=-1"),
        ({"namesrv": "localhost:1", "send_latency_fault": "v6"}, "send_latency_fault='v6'.*classic, v5"),
    ],
)
def test_bad_settings_are_named(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(evenq.ArgumentError, match=complaint):
        Producer(**arguments)  # type: ignore[arg-type]


def test_a_name_server_that_is_down_is_passed_over(any_cluster: AnyCluster, wide: str) -> None:
    with Producer(f"127.0.0.1:1;{any_cluster.namesrv}") as producer:
        assert producer.send(Message(wide, b"x")).ok


@pytest.mark.live
def test_everything_works_over_ipv6(topic: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        servers = Cluster(tmp_path, host="::1", namesrv_port=0, broker_port=0)
        await servers.start()
        try:
            assert servers.namesrv.startswith("[::1]:")
            async with evenq.aio.Producer(servers.namesrv) as producer:
                assert producer.client_id.startswith("::1@")
                receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(20)))
            assert all(receipt.ok for receipt in receipts)
            # an id holds the 16 bytes of an address
            assert {(len(receipt.msg_id), len(receipt.offset_msg_id)) for receipt in receipts} == {(56, 56)}
        finally:
            await servers.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("topic", ["or ders", "t" * 128, "SCHEDULE_TOPIC_XXXX"])
def test_a_topic_that_no_broker_takes_is_refused_here(any_cluster: AnyCluster, topic: str) -> None:
    with Producer(any_cluster.namesrv) as producer, pytest.raises(evenq.ArgumentError, match=f"topic='{topic}'"):
        producer.send(Message(topic, b"x"))
