"""Messages whose bytes changed on the broker's disk: nobody gets them, and it is said which they are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import evenq
from evenq.testing import cluster
from tests.clusters import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live

TOPIC = "orders"


def rot(data: Path, body: bytes) -> None:
    """Flip one bit of a message in the log."""
    (path,) = data.glob("*/commitlog/*")
    with path.open("r+b") as log:
        at = log.read(1 << 20).index(body)
        log.seek(at)
        log.write(bytes([body[0] ^ 1]))


def test_a_damaged_body_is_not_delivered_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with cluster(data=tmp_path) as running:
        create_topic(running.namesrv, TOPIC, queues=1)
        with evenq.Producer(running.namesrv) as producer:
            for number in range(3):
                producer.send(evenq.Message(TOPIC, b"body-%d" % number))
        rot(tmp_path, b"body-1")
        pushed: list[bytes] = []
        polled: list[bytes] = []
        with (
            caplog.at_level(logging.ERROR, "evenq"),
            evenq.PushConsumer(running.namesrv, "billing", begin="first") as push,
            evenq.LitePullConsumer(running.namesrv, "audit", begin="first") as pull,
        ):
            push.subscribe(TOPIC)
            push.start(lambda messages: pushed.extend(message.body for message in messages))
            pull.subscribe(TOPIC)

            def both_have_all() -> bool:
                polled.extend(message.body for message in pull.poll(0.05))
                return len(pushed) >= 2 and len(polled) >= 2

            wait_until(both_have_all, lambda: f"all messages, there are {pushed} and {polled}")
    assert sorted(pushed) == sorted(polled) == [b"body-0", b"body-2"]
    assert f"left out: message 1 of queue 0 of topic '{TOPIC}': its body has checksum" in caplog.text
