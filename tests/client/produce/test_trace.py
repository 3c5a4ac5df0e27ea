"""The trace: its records field by field as Java reads them, and the messages that carry them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import evenq
from evenq import Message, MessageQueue, SendResult, SendStatus, TransactionState
from evenq.client.produce.trace import MOST_BYTES, MOST_KEYS, Record, ended_record, sent_record, trace_messages
from evenq.client.produce.transactions import Ended
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import cluster
from tests.clusters import create_topic

RECEIPT = SendResult(
    status=SendStatus.SEND_OK, queue=MessageQueue("orders", "b", 0), offset=3, msg_id="KEY", offset_msg_id="PLACE"
)


def test_a_sent_message_has_javas_fields() -> None:
    message = Message("orders", b"12345", tags="paid", keys=["a", "b"])
    record = sent_record(
        message, RECEIPT, group="shop", address="1.2.3.4:10911", region="R", began_ms=1700, took_ms=12, kind=3
    )
    assert record.keys == ("KEY", "a", "b")
    assert record.text.endswith("\x02")
    assert record.text[:-1].split("\x01") == [
        "Pub", "1700", "R", "shop", "orders", "KEY", "paid", "a b", "1.2.3.4:10911", "5", "12", "3", "PLACE", "true",
    ]  # fmt: skip


def test_the_end_of_a_transaction_has_javas_fields() -> None:
    ended = Ended(
        topic="orders",
        tags=None,
        keys=(),
        msg_id="KEY",
        transaction_id="TX",
        address="1.2.3.4:10911",
        half_offset=1,
        log_offset=2,
        state=TransactionState.ROLLBACK,
        from_check=True,
    )
    record = ended_record(ended, group="shop", region="R", now_ms=1700)
    assert record.keys == ("KEY",)
    assert record.text[:-1].split("\x01") == [
        "EndTransaction", "1700", "R", "shop", "orders", "KEY", "", "", "1.2.3.4:10911", "2", "TX", "ROLLBACK_MESSAGE",
        "true",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "key"), [("x" * 1000, "k"), ("x", "k" * 500)])
def test_records_share_messages_that_are_not_too_large(text: str, key: str) -> None:
    records = [Record(f"{n}-{text}\x02", (f"{n}-{key}", "common")) for n in range(1000)]
    messages = list(trace_messages("trace", records))
    assert b"".join(message.body for message in messages) == "".join(record.text for record in records).encode()
    assert 1 < len(messages) < 100
    assert max(len(message.body) for message in messages) <= MOST_BYTES
    assert max(len(" ".join(message.keys)) for message in messages) <= MOST_KEYS + 1000
    assert all(message.keys.count("common") == 1 for message in messages)


def test_nothing_to_tell_is_no_message() -> None:
    assert list(trace_messages("trace", [])) == []


@pytest.mark.live
def test_every_message_is_told_of_once_and_the_trace_itself_is_not(topic: str) -> None:
    async def scenario() -> None:
        lines: list[list[str]] = []
        with cluster() as running:
            create_topic(running.namesrv, topic)
            (broker,) = running.brokers.values()

            def is_trace(request: Command) -> bool:
                if request.ext["b"] != "my-trace":
                    return False
                lines.extend(line.split("\x01") for line in request.body.decode().split("\x02")[:-1])
                return True

            # a trace that cannot be sent is given up: look at what is tried
            broker.faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.MESSAGE_ILLEGAL, when=is_trace)
            async with evenq.aio.Producer(
                running.namesrv, "shop", trace="my-trace", check=lambda message: TransactionState.COMMIT
            ) as producer:
                single = await producer.send(Message(topic, b"one", delay_level=0))
                batch = await producer.send_batch([Message(topic, b"two"), Message(topic, b"three")])
                half = await producer.send_in_transaction(Message(topic, b"half"), lambda *_: TransactionState.COMMIT)
                timed = await producer.send(Message(topic, b"late", deliver_at=datetime.now(UTC)))
        sent = {line[5]: line for line in lines if line[0] == "Pub"}
        assert list(sent) == [single.msg_id, batch[0].msg_id, batch[1].msg_id, half.msg_id, timed.msg_id]
        assert [line[11] for line in sent.values()] == ["0", "0", "0", "1", "3"]
        assert {line[3] for line in sent.values()} == {"shop"}
        assert {line[8] for line in sent.values()} == {broker.address}
        assert [(line[5], line[11]) for line in lines if line[0] == "EndTransaction"] == [
            (half.msg_id, "COMMIT_MESSAGE")
        ]
        assert len(lines) == 6

    asyncio.run(scenario())
