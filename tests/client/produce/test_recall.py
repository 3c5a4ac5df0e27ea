"""Timed messages that are taken back before they are delivered, from both brokers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import evenq
from evenq import ArgumentError, ConnectError, LitePullConsumer, Message, Producer, RefusedError, SendResult, StateError
from evenq.errors import NoPermission
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.recallhandle import RecallHandle
from evenq.testing import EmbeddedCluster
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


def later(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_a_message_that_was_taken_back_never_comes(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        first = producer.send(Message(topic, b"taken back", deliver_at=later(4)))
        second = producer.send(Message(topic, b"taken back by its handle", deliver_at=later(4)))
        last = producer.send(Message(topic, b"kept", deliver_at=later(6)))
        assert first.recall_handle
        assert second.recall_handle
        assert last.recall_handle
        assert producer.recall(first) == first.msg_id
        assert producer.recall(second.recall_handle) == second.msg_id
    with LitePullConsumer(any_cluster.namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        came = wait_until(consumer.poll, "the message that is kept")
    assert [message.body for message in came] == [b"kept"]


def test_a_producer_in_a_namespace_takes_its_messages_back(any_cluster: AnyCluster, topic: str) -> None:
    create_topic(any_cluster.namesrv, f"shop%{topic}", queues=1)

    async def scenario() -> tuple[str, SendResult]:
        async with evenq.aio.Producer(any_cluster.namesrv, namespace="shop") as producer:
            receipt = await producer.send(Message(topic, b"x", deliver_at=later(60)))
            return await producer.recall(receipt), receipt

    recalled, receipt = asyncio.run(scenario())
    assert recalled == receipt.msg_id
    assert RecallHandle.decode(receipt.recall_handle or "").topic == f"shop%{topic}"


@pytest.mark.parametrize("delay_level", [0, 5])
def test_a_receipt_without_a_handle_is_refused_here(any_cluster: AnyCluster, topic: str, delay_level: int) -> None:
    with Producer(any_cluster.namesrv) as producer:
        receipt = producer.send(Message(topic, b"x", delay_level=delay_level))
        assert receipt.recall_handle is None
        with pytest.raises(ArgumentError, match=f"topic '{topic}'.*only timed messages sent with deliver_at have one"):
            producer.recall(receipt)


def test_what_is_too_late_names_topic_handle_and_way_out(any_cluster: AnyCluster, topic: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        queue = producer.send(Message(topic, b"x")).queue
        handle = RecallHandle(topic, queue.broker, 1_700_000_000_001, "A1").encode()
        with pytest.raises(RefusedError) as caught:
            producer.recall(handle)
    assert caught.value.code == ResponseCode.ILLEGAL_OPERATION
    assert "timestamp invalid" in str(caught.value)
    assert str(caught.value).endswith(
        f"Message A1 of topic '{topic}', handle '{handle}': "
        "it can be taken back until its second comes, from the broker that has it"
    )


def test_a_broker_that_is_not_there_is_named(any_cluster: AnyCluster, topic: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        with pytest.raises(ConnectError, match=f"broker-z: the route of topic '{topic}' has no master"):
            producer.recall(RecallHandle(topic, "broker-z", 1, "A1").encode())
        with pytest.raises(evenq.TopicNotFound):
            producer.recall(RecallHandle(f"{topic}-other", "broker-a", 1, "A1").encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not base64"),
        ("!!!", "it is not base64"),
        ("djEgYSBiIG5vbmUgYw==", "it is not base64 of a version, topic, broker, time and id"),
        ("djIgYSBiIDEgYw==", "it is of version 'v2'; only 'v1' is known"),
        ("é", "it is not base64"),
    ],
)
def test_what_is_no_handle_is_refused_here(text: str, reason: str) -> None:
    with Producer("127.0.0.1:1") as producer, pytest.raises(ArgumentError, match=f"{reason}.*recall_handle"):
        producer.recall(text)


def test_a_closed_producer_takes_nothing_back() -> None:
    producer = Producer("127.0.0.1:1")
    producer.close()
    with pytest.raises(StateError, match="this producer is closed"):
        producer.recall("x")


def test_a_broker_that_has_recalls_switched_off_is_told_how_to_switch_them_on(
    own_cluster: EmbeddedCluster, topic: str
) -> None:
    with Producer(own_cluster.namesrv) as producer:
        receipt = producer.send(Message(topic, b"x", deliver_at=later(60)))
        own_cluster.brokers[receipt.queue.broker].faults.add(
            RequestCode.RECALL_MESSAGE, error=ResponseCode.NO_PERMISSION
        )
        with pytest.raises(NoPermission, match="recallMessageEnable=true"):
            producer.recall(receipt)
