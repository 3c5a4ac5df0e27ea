"""Hooks of a push consumer: every call of the handler is heard of, with what became of its messages."""

from __future__ import annotations

import asyncio
import threading

import pytest

from evenq import ConsumeEvent, Message, MessageView, Producer, PushConsumer, Retry, Timeouts, aio
from evenq.testing import EmbeddedCluster
from tests.clusters import create_topic
from tests.waiting import wait_until


def send(namesrv: str, topic: str, *bodies: bytes) -> None:
    create_topic(namesrv, topic, queues=1)
    with Producer(namesrv) as producer:
        for body in bodies:
            producer.send(Message(topic, body))


@pytest.mark.parametrize("orderly", [False, True])
def test_outcomes_and_errors_of_calls_are_heard(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, orderly: bool
) -> None:
    send(embedded_cluster.namesrv, topic, b"good", b"again", b"bad")
    heard: list[ConsumeEvent] = []

    def handle(messages: list[MessageView]) -> Retry | None:
        [message] = messages
        if message.reconsume_times == 0 and message.body == b"bad":
            raise KeyError("bad")
        return Retry(1) if message.reconsume_times == 0 and message.body == b"again" else None

    with PushConsumer(embedded_cluster.namesrv, group, begin="first", suspend=0.1) as consumer:
        consumer.on_consume(heard.append)
        consumer.subscribe(topic)
        consumer.start(handle, orderly=orderly)
        wait_until(lambda: len(heard) == 5, lambda: f"three calls and two again: {heard}")
    by_body: dict[bytes, list[ConsumeEvent]] = {}
    for event in heard:
        assert event.group == group
        assert event.elapsed_s >= 0
        assert not event.timed_out
        by_body.setdefault(event.messages[0].body, []).append(event)
    assert [event.outcome for event in by_body[b"good"]] == [None]
    assert [event.outcome for event in by_body[b"again"]] == [Retry(1), None]
    assert [len(event.failed) for event in by_body[b"again"]] == [1, 0]
    assert [type(event.error) for event in by_body[b"bad"]] == [KeyError, type(None)]
    assert {event.queue.topic for event in by_body[b"good"]} == {topic}


def test_a_call_that_is_given_up_is_heard_as_timed_out(
    embedded_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    send(embedded_cluster.namesrv, topic, b"hangs")
    heard: list[ConsumeEvent] = []
    free = threading.Event()

    def handle(messages: list[MessageView]) -> None:
        free.wait(20)

    with PushConsumer(
        embedded_cluster.namesrv, group, begin="first", timeouts=Timeouts(consume=0.2, drain=0.2)
    ) as consumer:
        consumer.on_consume(heard.append)
        consumer.subscribe(topic)
        consumer.start(handle)
        wait_until(lambda: bool(heard), "the call to be given up")
        free.set()
    assert heard[0].timed_out
    assert heard[0].elapsed_s >= 0.2
    assert [message.body for message in heard[0].failed] == [b"hangs"]


def test_coroutine_handlers_are_heard_too(embedded_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    send(embedded_cluster.namesrv, topic, *(b"%d" % number for number in range(20)))

    async def scenario() -> list[ConsumeEvent]:
        heard: list[ConsumeEvent] = []
        done = asyncio.Event()

        async def handle(messages: list[MessageView]) -> None: ...

        def hook(event: ConsumeEvent) -> None:
            heard.append(event)
            if sum(len(each.messages) for each in heard) == 20:
                done.set()

        async with aio.PushConsumer(embedded_cluster.namesrv, group, begin="first", batch=8) as consumer:
            consumer.on_consume(hook)
            consumer.subscribe(topic)
            await consumer.start(handle)
            await asyncio.wait_for(done.wait(), 20)
        return heard

    heard = asyncio.run(scenario())
    assert sorted(int(message.body) for event in heard for message in event.messages) == list(range(20))
    assert all(event.outcome is None and event.failed == [] for event in heard)
