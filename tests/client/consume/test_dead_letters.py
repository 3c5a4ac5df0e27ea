"""A message whose handler always fails: sixteen retries, each later than the one before, then a dead letter."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

import evenq
from evenq import LitePullConsumer, Message, MessageView, Producer, PushConsumer
from evenq.testing import Clock, cluster
from tests.clusters import create_topic
from tests.waiting import wait_until

# README.md names them: from the first retry on
PAUSES_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


@pytest.mark.live
def test_after_sixteen_retries_a_message_is_a_dead_letter(topic: str) -> None:
    clock = Clock()
    lock, tries = threading.Lock(), list[MessageView]()

    def handler(messages: list[MessageView]) -> evenq.Retry:
        with lock:
            tries.extend(messages)
        return evenq.Retry()

    with cluster(1, clock=clock.now) as running:
        create_topic(running.namesrv, topic, queues=1)
        [broker] = running.brokers.values()

        def given_back() -> int:
            """How often the message was stored to be delayed."""
            return running.call(
                lambda: sum(broker.store.bounds("SCHEDULE_TOPIC_XXXX", level)[1] for level in range(18))
            )

        with PushConsumer(running.namesrv, "billing", begin="first") as consumer:
            consumer.subscribe(topic)
            consumer.start(handler)
            with Producer(running.namesrv) as producer:
                producer.send(Message(topic, b"bad", keys=["k-1"]))
            for number, pause in enumerate(PAUSES_S, 1):
                wait_until(lambda n=number: given_back() == n, f"the message given back {number} times")  # type: ignore[misc]
                clock.advance(pause)
                wait_until(lambda n=number: len(tries) == n + 1, f"retry {number}")  # type: ignore[misc]
            with LitePullConsumer(running.namesrv, "dead", begin="first") as dead:
                dead.subscribe("%DLQ%billing")
                [letter] = wait_until(lambda: dead.poll(1.0), "the dead letter")
        assert (letter.body, letter.keys, letter.properties["RETRY_TOPIC"]) == (b"bad", ("k-1",), topic)
        assert [message.reconsume_times for message in tries] == list(range(17))
        # none came too early
        stored_ms = [message.store_timestamp for message in tries]
        waited = [(after - before) / 1000 for before, after in pairwise(stored_ms)]
        assert all(found >= pause for found, pause in zip(waited, PAUSES_S, strict=True)), waited
