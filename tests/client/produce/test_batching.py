"""Batches on both brokers: whole and divided."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

import evenq
from evenq import Message, MessageQueue, PartlySent, Producer, RefusedError
from evenq.client.produce.batching import BATCH_BYTES, batch_error, check_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster
from tests.clusters import AnyCluster, create_topic

BATCH = RequestCode.SEND_BATCH_MESSAGE


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
