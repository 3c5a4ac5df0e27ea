"""Requests and replies, on both brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import evenq
from evenq import Message, MessageView, NoReply, Producer, PushConsumer
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


@pytest.fixture
def asked(any_cluster: AnyCluster, topic: str, group: str) -> Iterator[list[MessageView]]:
    """What a consumer was asked; it replies to everything but b"silence", with the body reversed."""
    create_topic(any_cluster.namesrv, topic)
    got: list[MessageView] = []
    with (
        Producer(any_cluster.namesrv, "repliers-" + topic, compress_over=1000) as producer,
        PushConsumer(any_cluster.namesrv, group, begin="first") as consumer,
    ):

        def serve(messages: list[MessageView]) -> None:
            for message in messages:
                got.append(message)
                if message.body != b"silence":
                    producer.reply(message, message.body[::-1], properties={"to": message.tags or "", "mine": "ü"})

        consumer.subscribe(topic)
        consumer.start(serve)
        wait_until(lambda: len(consumer.queues) == 8, "the queues of both brokers")
        yield got


def test_a_request_gets_its_own_reply(any_cluster: AnyCluster, asked: list[MessageView], topic: str) -> None:
    async def scenario() -> None:
        async with evenq.aio.Producer(any_cluster.namesrv, "askers-" + topic) as producer:
            bodies = [b"question %d" % n for n in range(20)]
            replies = await asyncio.gather(
                *(producer.request(Message(topic, body, tags=f"t-{body[-1]}"), timeout=30) for body in bodies)
            )
        assert [reply.body for reply in replies] == [body[::-1] for body in bodies]
        assert [reply.properties["to"] for reply in replies] == [f"t-{body[-1]}" for body in bodies]
        assert {reply.properties["mine"] for reply in replies} == {"ü"}

    asyncio.run(scenario())
    assert {message.queue.broker for message in asked} == {"broker-a", "broker-b"}


def test_a_large_reply_comes_whole(any_cluster: AnyCluster, asked: list[MessageView], topic: str) -> None:
    body = bytes(range(256)) * 400
    with Producer(any_cluster.namesrv, "askers-" + topic) as producer:
        assert producer.request(Message(topic, body), timeout=30).body == body[::-1]


def test_no_reply_costs_the_timeout_and_is_named(any_cluster: AnyCluster, asked: list[MessageView], topic: str) -> None:
    with Producer(any_cluster.namesrv, "askers-" + topic) as producer:
        producer.request(Message(topic, b"hello"), timeout=30)
        began = time.monotonic()
        with pytest.raises(
            NoReply, match=rf"nobody replied to request \w+ in topic '{topic}' within 1\.000 s"
        ) as caught:
            producer.request(Message(topic, b"silence"), timeout=1.0)
        assert time.monotonic() - began < 10
        assert isinstance(caught.value, TimeoutError)
        wait_until(lambda: any(message.body == b"silence" for message in asked), "the request itself")
        assert producer._inner._replies._waiting == {}


def test_an_ordinary_message_cannot_be_replied_to(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic)
    got: list[MessageView] = []
    with (
        Producer(any_cluster.namesrv) as producer,
        PushConsumer(any_cluster.namesrv, group, begin="first") as consumer,
    ):
        consumer.subscribe(topic)
        consumer.start(got.extend)
        producer.send(Message(topic, b"x"))
        wait_until(lambda: got, "the message")
        with pytest.raises(evenq.ArgumentError, match="it asks for no reply: it has no CORRELATION_ID"):
            producer.reply(got[0], b"answer")


def test_a_reply_to_somebody_who_has_gone_is_refused(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic)
    got: list[MessageView] = []
    with PushConsumer(any_cluster.namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.start(got.extend)
        with Producer(any_cluster.namesrv, "askers-" + topic) as gone, pytest.raises(NoReply):
            gone.request(Message(topic, b"x"), timeout=3)
        wait_until(lambda: got, "the request")
    with Producer(any_cluster.namesrv) as producer, pytest.raises(evenq.SendFailed, match=r"channel of .* not found"):
        producer.reply(got[0], b"too late")
