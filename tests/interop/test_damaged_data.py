"""The Java broker goes on with a data directory in which the embedded one has passed over damage."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from evenq import Message, MessageView, Producer, PushConsumer
from evenq.broker.store.state_files import Checkpoint
from evenq.protocol import RequestCode
from evenq.protocol.headers import SendRequestV2
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import ask, brokers, create_topic
from tests.realmq import RealCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.live

TOPIC = "orders"
COUNT = 200
DAMAGED = 150


def body(number: int) -> bytes:
    return b"message %03d" % number


def send_all(embedded: EmbeddedCluster) -> None:
    """Some messages before a checkpoint, and more behind it, one of them with a zero in its properties."""
    create_topic(embedded.namesrv, TOPIC, 1)
    with Producer(embedded.namesrv, coalesce=False) as producer:
        for number in range(COUNT // 2):
            producer.send(Message(TOPIC, body(number)))
        broker = embedded.brokers["broker-a"]
        end = broker.store.log.end
        page = broker.directory / "checkpoint"
        wait_until(lambda: page.exists() and Checkpoint.decode(page.read_bytes()).mark >= end, "a checkpoint", 30)
        for number in range(COUNT // 2, COUNT):
            producer.send(Message(TOPIC, body(number)))
    header = SendRequestV2(
        producer_group="p",
        topic=TOPIC,
        queue_id=0,
        born_timestamp=int(time.time() * 1000),
        properties="zero\x01a\0b\x02",
    )
    assert ask(brokers(embedded.namesrv)["broker-a"], RequestCode.SEND_MESSAGE_V2, header, body(COUNT)).code == 0


def damage(directory: Path) -> None:
    (log,) = (directory / "broker-a" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(file.read(1 << 20).index(body(DAMAGED)))
        file.write(b"XXXX")


def consumed(namesrv: str, group: str) -> dict[bytes, dict[str, str]]:
    """Every message that a new group gets, with its properties."""
    found: dict[bytes, dict[str, str]] = {}
    times: Counter[bytes] = Counter()
    with PushConsumer(namesrv, group, begin="first") as consumer:
        consumer.subscribe(TOPIC)

        def handle(messages: list[MessageView]) -> None:
            times.update(message.body for message in messages)
            found.update((message.body, dict(message.properties)) for message in messages)

        consumer.start(handle)
        wait_until(lambda: len(found) >= COUNT, lambda: f"{COUNT} messages: {len(found)}", 30)
        # whatever else there is
        time.sleep(0.5)
    assert [each for each, number in times.items() if number > 1] in ([], [body(DAMAGED - 1)])
    return found


def test_the_java_broker_reads_on_behind_damage(tmp_path: Path) -> None:
    with cluster(data=tmp_path / "running") as embedded:
        send_all(embedded)
        # as after a kill
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
    damage(tmp_path / "killed")
    whole = [body(number) for number in range(COUNT + 1) if number != DAMAGED]

    with cluster(data=tmp_path / "killed") as embedded:
        assert embedded.brokers["broker-a"].store.recovered.skipped
        ours = consumed(embedded.namesrv, "ours")
    assert sorted(ours) == whole
    assert ours[body(COUNT)].keys() >= {"zero", "__CRC32#"}

    with RealCluster(brokers=1, data=tmp_path / "killed") as real:
        assert consumed(real.namesrv, "java") == ours
        with Producer(real.namesrv) as producer:
            assert producer.send(Message(TOPIC, b"one more")).offset == COUNT + 1
        real.stop_broker("broker-a")
    with cluster(data=tmp_path / "killed") as embedded:
        assert sorted(consumed(embedded.namesrv, "again")) == sorted([*whole, b"one more"])
