"""Batches on both brokers: whole, divided, and made by waiting a little."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import evenq
from evenq import Message, MessageQueue, PartlySent, Producer, RefusedError
from evenq.client.produce.batching import BATCH_BYTES, batch_error, check_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import AnyCluster, create_topic

BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
def wide(any_cluster: AnyCluster, topic: str) -> str:
    """A topic with four queues on each of two brokers."""
    create_topic(any_cluster.namesrv, topic, queues=4)
    return topic


@pytest.fixture
def own_cluster() -> Iterator[EmbeddedCluster]:
    with cluster(brokers=2) as running:
        yield running


def test_a_batch_is_stored_in_one_queue_in_order(any_cluster: AnyCluster, wide: str) -> None:
    queue = MessageQueue(wide, "broker-b", 2)
    with Producer(any_cluster.namesrv) as producer:
        for start in (0, 100):
            receipts = producer.send_batch([Message(wide, b"%d" % n) for n in range(100)], queue=queue)
            assert [receipt.offset for receipt in receipts] == list(range(start, start + 100))
            assert {receipt.queue for receipt in receipts} == {queue}
            assert len({receipt.msg_id for receipt in receipts} | {each.offset_msg_id for each in receipts}) == 200
        # without a queue batches take turns
        queues = [producer.send_batch([Message(wide, b"x")] * 2)[0].queue for _ in range(8)]
    assert set(Counter(queues).values()) == {1}


def test_a_long_list_is_divided_and_its_receipts_stay_in_order(any_cluster: AnyCluster, wide: str) -> None:
    messages = [Message(wide, b"%08d" % n + b" " * 992) for n in range(1000)]
    with Producer(any_cluster.namesrv) as producer:
        receipts = producer.send_batch(messages, split=True)
    assert len(receipts) == 1000
    assert all(receipt.ok for receipt in receipts)
    # each batch is in one queue, one message after the other, and no larger than it should be
    runs = Counter((receipt.queue, receipt.offset - n) for n, receipt in enumerate(receipts))
    assert max(runs.values()) * 1000 < BATCH_BYTES
    assert len(runs) < 20
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 1000


def test_sharding_keys_are_kept_together(any_cluster: AnyCluster, wide: str) -> None:
    messages = [Message(wide, b"%d" % n, sharding_key=f"k-{n % 7}") for n in range(70)]
    with Producer(any_cluster.namesrv) as producer:
        alone = {key: producer.send(Message(wide, b"x", sharding_key=f"k-{key}")).queue for key in range(7)}
        with pytest.raises(evenq.ArgumentError, match=r"sharding keys of \d queues.*split=True"):
            producer.send_batch(messages)
        receipts = producer.send_batch(messages, split=True)
        assert producer.send_batch(messages[::7])[0].queue == alone[0]
    assert [receipt.queue for receipt in receipts] == [alone[n % 7] for n in range(70)]
    for key in range(7):
        offsets = [receipt.offset for receipt in receipts[key::7]]
        assert offsets == sorted(offsets)


def test_what_was_sent_and_what_not_is_told_message_by_message(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    messages = [Message(topic, b"x" * 40_000) for _ in range(30)]
    with Producer(own_cluster.namesrv, compress_over=1 << 20) as producer:
        producer.send(messages[0])
        own_cluster.brokers["broker-a"].faults.add(BATCH, error=ResponseCode.MESSAGE_ILLEGAL, times=1)
        with pytest.raises(
            PartlySent, match=r"3 of 30 messages to topic .* were not sent.*MESSAGE_ILLEGAL|code 13"
        ) as e:
            producer.send_batch(messages, split=True)
        kinds = Counter(type(result).__name__ for result in e.value.results)
        assert kinds == {"SendResult": 27, "RefusedError": 3}
        for broker in own_cluster.brokers.values():
            broker.faults.add(BATCH, error=ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(RefusedError):
            producer.send_batch(messages, split=True)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "give at least one message"),
        ([Message("a", b"x"), Message("b", b"x")], "topics 'a' and 'b'.*one topic at a time"),
        ([Message("a", b"x", delay_level=1)], "delayed"),
        ([Message("a", b"x", deliver_at=datetime.now(UTC))], "delayed"),
        ([Message("a", b"x", properties={"DELAY": "3"})], "delayed"),
        (
            [Message("a", b"x", properties={"n": "1"}), Message("a", b"x", properties={"TIMER_DELAY_MS": "9"})],
            "delayed",
        ),
        ([Message("%RETRY%g", b"x")], "retry topic"),
    ],
)
def test_messages_that_cannot_travel_together_are_refused(messages: list[Message], complaint: str) -> None:
    with pytest.raises(evenq.ArgumentError, match=complaint):
        check_batch(messages)
    assert not messages or "topics" in complaint or batch_error(messages[-1])


# linger


def test_messages_that_wait_a_little_travel_together(any_cluster: AnyCluster, wide: str) -> None:
    async def scenario() -> None:
        async with evenq.aio.Producer(any_cluster.namesrv, linger=0.05) as producer:
            sends = [producer.send_async(Message(wide, b"%d" % n)) for n in range(100)]
            receipts = await asyncio.gather(*sends)
            assert len({receipt.queue for receipt in receipts}) == 1
            assert [receipt.offset for receipt in receipts] == list(range(100))
            assert len({receipt.msg_id for receipt in receipts}) == 100
            # one alone does not wait for ever
            assert (await producer.send(Message(wide, b"alone"))).ok

    asyncio.run(scenario())


def test_what_cannot_travel_together_does_not(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario() -> None:
        async with evenq.aio.Producer(own_cluster.namesrv, linger=0.02) as producer:
            await producer.send(Message(topic, b"so that the route is known"))
            tagged = [producer.send_async(Message(topic, b"x", tags=tags)) for tags in ("a", "b") * 5]
            keyed = [producer.send_async(Message(topic, b"x", sharding_key=f"k-{n % 3}")) for n in range(9)]
            large = producer.send_async(Message(topic, b"x" * 5000))
            bound = producer.send_async(Message(topic, b"x"), queue=MessageQueue(topic, "broker-b", 3))
            by_tag = [receipt.queue for receipt in await asyncio.gather(*tagged)]
            by_key = [receipt.queue for receipt in await asyncio.gather(*keyed)]
            assert len(set(by_tag[::2])) == len(set(by_tag[1::2])) == 1
            assert by_tag[0] != by_tag[1]
            assert by_key[:3] * 3 == by_key
            assert (await large).ok
            assert (await bound).queue == MessageQueue(topic, "broker-b", 3)

    asyncio.run(scenario())


def test_a_batch_leaves_when_it_is_full(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv, linger=30) as producer:
        sends = [producer.send_async(Message(topic, b"x" * 4000)) for _ in range(200)]
        assert all(send.result(10).ok for send in sends[:160])
        assert not sends[-1].done()
        producer.flush()
        assert all(send.done() and send.result().ok for send in sends)


def test_closing_sends_what_still_waits(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv, linger=30) as producer:
        send = producer.send_async(Message(topic, b"x"))
    assert send.result(0).ok


def test_a_batch_that_fails_fails_for_each_of_its_messages(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    for broker in own_cluster.brokers.values():
        broker.faults.add(BATCH, error=ResponseCode.SYSTEM_BUSY)
    with Producer(own_cluster.namesrv, linger=0.02) as producer:
        sends = [producer.send_async(Message(topic, b"x")) for _ in range(3)]
        for send in sends:
            with pytest.raises(evenq.SendFailed) as caught:
                send.result(10)
            assert len(caught.value.attempts) == 3


def test_a_bad_message_is_refused_alone(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv, linger=0.02) as producer:
        good = producer.send_async(Message(topic, b"x"))
        bad = producer.send_async(Message(topic, b""))
        with pytest.raises(evenq.ArgumentError, match="at least one byte"):
            bad.result(10)
        assert good.result(10).ok
