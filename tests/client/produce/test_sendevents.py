"""Hooks of a producer: each message is heard of once, when its send has ended, however it was sent."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import evenq
from evenq import (
    ArgumentError,
    Message,
    NoReply,
    Producer,
    SendEvent,
    SendFailed,
    TransactionState,
)
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster
from tests.clusters import create_topic


@contextmanager
def refusing(cluster: EmbeddedCluster, code: RequestCode, error: ResponseCode, times: int = 1000) -> Iterator[None]:
    for broker in cluster.brokers.values():
        broker.faults.add(code, error=error, times=times)
    try:
        yield
    finally:
        for broker in cluster.brokers.values():
            broker.faults.clear(code)


@pytest.fixture
def wide(embedded_cluster: EmbeddedCluster, topic: str) -> str:
    create_topic(embedded_cluster.namesrv, topic, queues=4)
    return topic


def test_every_way_to_send_is_heard_once_for_each_message(embedded_cluster: EmbeddedCluster, wide: str) -> None:
    heard: list[SendEvent] = []
    with Producer(
        embedded_cluster.namesrv, "shop", check=lambda message: TransactionState.ROLLBACK, compress_over=10_000
    ) as producer:
        producer.on_send(heard.append)
        receipt = producer.send(Message(wide, b"sync"))
        # whoever waited goes on after the hook
        assert [(event.message.body, event.result, event.error) for event in heard] == [(b"sync", receipt, None)]
        futures = [producer.send_async(Message(wide, b"async %d" % number)) for number in range(200)]
        assert all(future.result(10).ok for future in futures)
        producer.send_oneway(Message(wide, b"oneway"))
        batch = producer.send_batch([Message(wide, b"batch %d" % number) for number in range(20)])
        producer.send_batch([Message(wide, b"divided") for _ in range(20)], split=True)
        producer.send_in_transaction(Message(wide, b"half"), lambda message, key: TransactionState.COMMIT)
        with pytest.raises(NoReply):
            producer.request(Message(wide, b"question"), timeout=0.3)
    bodies = Counter(event.message.body.split()[0] for event in heard)
    assert bodies == {b"sync": 1, b"async": 200, b"oneway": 1, b"batch": 20, b"divided": 20, b"half": 1, b"question": 1}
    assert all(0 < event.elapsed_s < 10 for event in heard)
    by_body = {event.message.body: event for event in heard}
    assert [by_body[b"batch %d" % number].result for number in range(20)] == list(batch)
    assert [by_body[b"async %d" % number].result for number in range(200)] == [each.result() for each in futures]
    assert by_body[b"oneway"].result is None
    assert by_body[b"oneway"].error is None
    assert isinstance(by_body[b"question"].error, NoReply)


def test_failures_are_heard_with_their_errors(embedded_cluster: EmbeddedCluster, wide: str) -> None:
    heard: list[SendEvent] = []
    with Producer(embedded_cluster.namesrv, retries=0) as producer:
        producer.on_send(heard.append)
        with pytest.raises(ArgumentError):
            producer.send(Message(wide, bytes(5_000_000)))
        with refusing(embedded_cluster, RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY):
            with pytest.raises(SendFailed):
                producer.send(Message(wide, b"refused"))
            with pytest.raises(evenq.EvenqError):
                producer.send_batch([Message(wide, b"refused")] * 3)
            with pytest.raises(evenq.EvenqError):
                producer.send_batch([Message(wide, b"refused")] * 3, split=True)
    assert [type(event.error) for event in heard[:2]] == [ArgumentError, SendFailed]
    assert len(heard) == 8
    assert all(event.result is None and event.error is not None for event in heard)


def test_a_batch_that_is_refused_and_sent_apart_is_heard_once(embedded_cluster: EmbeddedCluster, wide: str) -> None:
    heard: list[SendEvent] = []
    with Producer(embedded_cluster.namesrv, linger=0.05) as producer:
        producer.on_send(heard.append)
        producer.send(Message(wide, b"warm"))
        with refusing(embedded_cluster, RequestCode.SEND_BATCH_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, times=1):
            futures = [producer.send_async(Message(wide, b"%d" % number)) for number in range(8)]
            assert all(future.result(10).ok for future in futures)
    assert sorted(event.message.body for event in heard) == sorted([b"warm", *(b"%d" % number for number in range(8))])
    assert all(event.error is None for event in heard)


def test_a_hook_that_raises_changes_nothing_and_is_logged(
    embedded_cluster: EmbeddedCluster, wide: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: SendEvent) -> None:
        raise KeyError(event.message.topic)

    heard: list[SendEvent] = []
    with Producer(embedded_cluster.namesrv) as producer:
        producer.on_send(broken)
        producer.on_send(heard.append)
        for _ in range(5):
            assert producer.send(Message(wide, b"x")).ok
    assert len(heard) == 5
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "broken" in errors[0].getMessage()


async def _wait(event: SendEvent) -> None: ...


@pytest.mark.parametrize("hook", [_wait, None, 3])
def test_what_cannot_be_a_hook_is_refused(embedded_cluster: EmbeddedCluster, hook: Callable[[SendEvent], None]) -> None:
    with Producer(embedded_cluster.namesrv) as producer, pytest.raises(ArgumentError, match="plain function"):
        producer.on_send(hook)


def test_of_a_divided_batch_each_message_is_heard_with_its_own_outcome(
    embedded_cluster: EmbeddedCluster, wide: str
) -> None:
    heard: list[SendEvent] = []
    batch = [Message(wide, b"%4d" % number + bytes(10_000)) for number in range(60)]
    queue = evenq.MessageQueue(wide, "broker-a", 0)
    with Producer(embedded_cluster.namesrv, retries=0) as producer:
        producer.on_send(heard.append)
        with (
            refusing(embedded_cluster, RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SYSTEM_BUSY, times=1),
            pytest.raises(evenq.PartlySent) as raised,
        ):
            producer.send_batch(batch, split=True, queue=queue)
    assert [event.result or event.error for event in heard] == list(raised.value.results)
    assert {event.result is None for event in heard} == {True, False}
