"""A broker that is away for a while: each thing that fails is logged when it begins and when it works again."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from evenq import Intervals, Message, MessageView, Producer, PushConsumer
from evenq.testing import cluster
from tests.clusters import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live

FAST = Intervals(heartbeat=0.1, commit=0.1, rebalance=0.2, renew_locks=0.2)
BEGIN, END = "failed and is repeated until it works", "works again after"


def test_pulls_that_fail_are_logged_when_that_begins_and_ends(
    topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster(brokers=2) as running, Producer(running.namesrv) as producer:
        create_topic(running.namesrv, topic, queues=2)
        seen: list[MessageView] = []
        with PushConsumer(running.namesrv, group, begin="first", intervals=FAST) as consumer:
            consumer.subscribe(topic)
            consumer.start(seen.extend)
            for _ in range(8):
                producer.send(Message(topic, b"x"))
            wait_until(lambda: len(seen) == 8, "all messages")
            # what failed while the group began is none of this test's business
            caplog.clear()
            with caplog.at_level(logging.WARNING, "evenq.supervision"):

                def names(phase: str) -> Counter[str]:
                    texts = [record.getMessage() for record in caplog.records]
                    return Counter(text.split(f" {phase}")[0] for text in texts if phase in text)

                def pulls(phase: str) -> set[str]:
                    return {name for name in names(phase) if name.startswith(f"pull from MessageQueue [topic={topic}")}

                running.stop_broker("broker-b")
                wait_until(lambda: len(pulls(BEGIN)) == 2, lambda: f"pulls that fail: {names(BEGIN)}")
                running.start_broker("broker-b")

                def all_work_again() -> bool:
                    # a pull that waits at the broker for messages has not worked yet
                    producer.send(Message(topic, b"x"))
                    return pulls(END) == pulls(BEGIN)

                wait_until(all_work_again, lambda: f"pulls that work: {names(END)}")
                # heartbeats, renewals of locks and questions may have failed, too
                assert max(names(BEGIN).values()) == max(names(END).values()) == 1
