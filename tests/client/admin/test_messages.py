"""Messages by id, by key and by place, on both brokers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from evenq import Admin, ArgumentError, MessageQueue, RefusedError, SendResult
from evenq.protocol.ids import message_id, pack_host
from tests.waiting import wait_until


def test_a_message_is_found_by_the_brokers_id(admin: Admin, wide: str, sent: list[SendResult]) -> None:
    for number, receipt in enumerate(sent):
        found = admin.message(receipt.offset_msg_id)
        assert (found.topic, found.body, found.queue, found.queue_offset, found.unique_key, found.keys) == (
            wide,
            f"{number}".encode(),
            receipt.queue,
            receipt.offset,
            receipt.msg_id,
            (f"k-{number % 4}",),
        )


def test_messages_are_found_by_key(admin: Admin, wide: str, sent: list[SendResult]) -> None:
    found = wait_until(
        lambda: each if len(each := admin.messages_by_key(wide, "k-1")) == 3 else None, "three messages in the index"
    )
    assert [message.body for message in found] == [b"1", b"5", b"9"]
    assert [message.queue for message in found] == [sent[n].queue for n in (1, 5, 9)]
    assert [message.body for message in admin.messages_by_key(wide, "k-1", limit=2)] == [b"5", b"9"]
    assert admin.messages_by_key(wide, "k-9") == ()
    later = datetime.now(UTC) + timedelta(hours=1)
    assert admin.messages_by_key(wide, "k-1", begin=later) == ()


def test_a_message_is_found_by_the_producers_id(admin: Admin, wide: str, sent: list[SendResult]) -> None:
    (found,) = wait_until(lambda: admin.messages_by_unique_key(wide, sent[7].msg_id), "the message in the index")
    assert (found.body, found.queue, found.queue_offset) == (b"7", sent[7].queue, sent[7].offset)
    assert admin.messages_by_unique_key(wide, "0" * 32) == ()


def test_messages_are_read_where_they_are(admin: Admin, sent: list[SendResult]) -> None:
    queue = sent[0].queue
    bodies = [f"{n}".encode() for n, receipt in enumerate(sent) if receipt.queue == queue]
    assert [message.body for message in admin.messages_at(queue, 0, 2)] == bodies[:2]
    assert [message.body for message in admin.messages_at(queue, 1, 100)] == bodies[1:]
    assert [(message.queue, message.queue_offset) for message in admin.messages_at(queue, 2)] == [(queue, 2)]
    assert admin.messages_at(queue, 3) == ()


def test_an_id_that_leads_elsewhere_is_refused_before_anybody_is_asked(admin: Admin, sent: list[SendResult]) -> None:
    with pytest.raises(ArgumentError, match=r"it would be on 192\.0\.2\.1:10911, which is no broker here"):
        admin.message(message_id(pack_host("192.0.2.1:10911"), 0))
    with pytest.raises(ArgumentError, match="messages_by_unique_key"):
        admin.message(sent[0].msg_id)
    with pytest.raises(ArgumentError, match="32 hexadecimal digits"):
        admin.message("o-1")


def test_a_place_without_a_message_is_named(admin: Admin, sent: list[SendResult]) -> None:
    with pytest.raises(RefusedError, match="can not find message"):
        admin.message(message_id(pack_host(admin.masters()["broker-a"]), 1 << 40))
    with pytest.raises(ArgumentError, match="has no such queue"):
        admin.messages_at(MessageQueue(sent[0].queue.topic, "broker-z", 0), 0)
    with pytest.raises(ArgumentError, match="count=0"):
        admin.messages_at(sent[0].queue, 0, 0)
    with pytest.raises(ArgumentError, match="limit=0"):
        admin.messages_by_key(sent[0].queue.topic, "k-1", limit=0)
    with pytest.raises(ArgumentError, match=r"begin=.*time zone"):
        admin.messages_by_key(sent[0].queue.topic, "k-1", begin=datetime(2026, 1, 1))
