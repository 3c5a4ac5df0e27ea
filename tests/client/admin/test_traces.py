"""What the trace tells of one message, on both brokers, from clients in Python and Java."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from evenq import (
    Admin,
    Message,
    MessageView,
    Producer,
    PushConsumer,
    Retry,
    SendResult,
    TopicNotFound,
    TransactionState,
)
from evenq.client.admin import MessageTrace
from evenq.protocol.traces import AfterRecord, BeforeRecord, RecallRecord, SentRecord
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.waiting import wait_until


@pytest.fixture
def trace_topic(any_cluster: AnyCluster, topic: str) -> str:
    create_topic(any_cluster.namesrv, f"{topic}-trace", queues=1)
    return f"{topic}-trace"


def test_a_message_is_followed_from_its_producer_to_its_consumers(
    any_cluster: AnyCluster, admin: Admin, wide: str, trace_topic: str, group: str
) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    with Producer(any_cluster.namesrv, "shop", trace=trace_topic) as producer:
        receipt = producer.send(Message(wide, b"12345", tags="paid", keys=["o-1"]))
        other = producer.send(Message(wide, b"other"))
    seen: list[MessageView] = []

    def handler(messages: list[MessageView]) -> Retry | None:
        seen.extend(messages)
        return None if messages[0].reconsume_times else Retry(delay_level=1)

    with PushConsumer(any_cluster.namesrv, group, begin="first", trace=trace_topic) as consumer:
        consumer.subscribe(wide)
        consumer.start(handler)
        wait_until(lambda: len(seen) >= 4, "each message twice")

    def whole() -> MessageTrace | None:
        found = admin.trace(receipt.msg_id, topic=trace_topic)
        return found if found.sends and len([each for each in found.deliveries if each.outcome]) == 2 else None

    found = wait_until(whole, lambda: f"all of {admin.trace(receipt.msg_id, topic=trace_topic)}")
    (send,) = found.sends
    assert (send.group, send.client, send.ok, send.topic, send.kind) == ("shop", "127.0.0.1", True, wide, "NORMAL")
    assert (send.broker, send.store_host) == (receipt.queue.broker, admin.masters()[receipt.queue.broker])
    assert (send.offset_msg_id, send.tags, send.keys, send.body_size) == (receipt.offset_msg_id, "paid", ("o-1",), 5)
    assert send.at is not None
    assert began < send.at < datetime.now(UTC)
    first, second = found.deliveries
    assert [(each.group, each.ok, each.outcome, each.tries) for each in (first, second)] == [
        (group, False, "FAILED", 0),
        (group, True, "SUCCESS", 1),
    ]
    assert first.client == second.client
    assert consumer.client_id.startswith(first.client)
    assert first.began is not None
    assert first.ended is not None
    assert second.began is not None
    assert send.at < first.began <= first.ended <= second.began + timedelta(milliseconds=1)
    assert (found.ends, found.recalls) == ((), ())
    assert admin.trace(other.msg_id, topic=trace_topic).sends[0].body_size == 5


def test_the_end_of_a_transaction_is_told(any_cluster: AnyCluster, admin: Admin, wide: str, trace_topic: str) -> None:
    with Producer(
        any_cluster.namesrv, "shop", trace=trace_topic, check=lambda message: TransactionState.COMMIT
    ) as producer:
        half = producer.send_in_transaction(Message(wide, b"x"), lambda *_: TransactionState.ROLLBACK)
    found = wait_until(lambda: told(admin, half, trace_topic), "the trace")
    (end,) = found.ends
    assert (end.group, end.client, end.state, end.from_check) == ("shop", "127.0.0.1", "ROLLBACK_MESSAGE", False)
    assert [each.kind for each in found.sends] == ["HALF"]


def told(admin: Admin, receipt: SendResult, topic: str) -> MessageTrace | None:
    return admin.trace(receipt.msg_id, topic=topic) or None


def test_a_message_without_a_trace_has_an_empty_one(admin: Admin, trace_topic: str) -> None:
    found = admin.trace("0" * 32, topic=trace_topic)
    assert not found
    assert found == MessageTrace(msg_id="0" * 32, sends=(), deliveries=(), ends=(), recalls=())
    with pytest.raises(TopicNotFound):
        admin.trace("0" * 32, topic=f"{trace_topic}-other")


def test_records_of_all_kinds_are_read_and_damaged_ones_skipped(
    any_cluster: AnyCluster, admin: Admin, wide: str, trace_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    call = "0A00000112670000CAFE47B761F40000"
    bodies = [
        # a call of which only the end is known, and one that has not ended
        AfterRecord("call-1", "K", 15, True, "", None, None, None).encode()
        + BeforeRecord(1_700_000_000_000, "R", "billing", call, "K", 3).encode(),
        SentRecord(1_700_000_000_000, "R", "shop", wide, "K", "", "", "1.2.3.4:5", 1, 2, 9, "", False).encode()
        + RecallRecord(1_700_000_000_500, "R", "shop", wide, "K", True).encode()
        + SentRecord(1, "R", "shop", wide, "other", "", "", "1.2.3.4:5", 1, 2, 0, "", True).encode(),
        "Pub\x01damaged\x02",
    ]
    with Producer(any_cluster.namesrv) as producer:
        # the same twice: a trace message may have been sent again
        for body in [*bodies, bodies[1]]:
            producer.send(Message(trace_topic, body.encode(), keys=["K"]))
    wait_until(lambda: len(admin.messages_by_key(trace_topic, "K")) == 4, "four messages in the index")
    with caplog.at_level(logging.WARNING, "evenq.client.admin.traces"):
        found = admin.trace("K", topic=trace_topic)
    (warning,) = caplog.messages
    assert "a record of the trace is skipped" in warning
    (send,) = found.sends
    assert (send.broker, send.store_host, send.kind, send.ok) == (None, "1.2.3.4:5", "9", False)
    assert [(each.at, each.ok) for each in found.recalls] == [(datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC), True)]
    open_call, ended = found.deliveries
    assert (open_call.client, open_call.group, open_call.tries) == ("10.0.0.1@4711", "billing", 3)
    assert (open_call.ended, open_call.took_ms, open_call.ok, open_call.outcome) == (None, None, None, None)
    assert (ended.client, ended.group, ended.began, ended.ended) == ("127.0.0.1", None, None, None)
    assert (ended.took_ms, ended.ok, ended.outcome, ended.tries) == (15, True, "SUCCESS", None)


def test_what_a_java_consumer_tells_is_read(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, java: JavaHost
) -> None:
    java.push(any_cluster.namesrv, group, {wide: "*"}, trace=True, fail_times=1)
    with Producer(any_cluster.namesrv, "shop", trace=True) as producer:
        receipt = producer.send(Message(wide, b"x"))

    def whole() -> MessageTrace | None:
        try:
            found = admin.trace(receipt.msg_id)
        except TopicNotFound:
            return None
        return found if found.sends and len([each for each in found.deliveries if each.outcome]) == 2 else None

    found = wait_until(whole, "two calls in the trace")
    assert [each.group for each in found.sends] == ["shop"]
    assert [(each.group, each.ok, each.tries) for each in found.deliveries] == [(group, False, 0), (group, True, 1)]
    # an address of its machine, which need not be the one of its client id, and its process
    (client,) = {each.client for each in found.deliveries}
    address, _, process = client.partition("@")
    assert ip_address(address)
    assert process.isdecimal()
