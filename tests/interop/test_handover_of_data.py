"""One data directory, handed from the embedded broker to the Java broker and back.

What waits for its time is waiting by the clock of the broker that writes it, and overdue by that of the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import evenq
from evenq import Message, MessageQueue, Producer
from evenq.client.net.session import Session
from evenq.client.read.ranges import QueueRange
from evenq.client.read.reading import RangeReader
from evenq.model import Begin
from evenq.protocol import RequestCode, decode_messages
from evenq.protocol.headers import UpdateOffset
from evenq.testing import Clock, cluster
from tests.clusters import ask, brokers, create_topic, wait_shown
from tests.realmq import JavaHost, RealCluster
from tests.waiting import wait_until

COUNT = 100_000
TOPICS = {"orders": 4, "stock": 8, "notes": 1}
JAVA_TOPIC = "java-orders"
LATER = "later"
WAITING = 20
GROUP = "billing"
HOUR = 3600
# the level of 1 m
LEVEL = 5

Contents = dict[MessageQueue, list[bytes]]


def contents(namesrv: str, topics: Iterable[str]) -> Contents:
    """The bodies of all messages of topics, by queue, each at the place of its offset."""
    with evenq.Admin(namesrv) as admin:
        queues = [queue for topic in topics for queue in admin.topic_status(topic).queues]
    ranges = [QueueRange(queue.queue, queue.min_offset, queue.max_offset) for queue in queues]
    found: Contents = {part.queue: [] for part in ranges}

    async def read() -> None:
        session = Session(namesrv)
        try:
            async for chunk in RangeReader(session, "reader").read(ranges):
                bodies = found[chunk.queue]
                for message in decode_messages(chunk.body):
                    assert message.queue_offset == len(bodies)
                    bodies.append(message.body)
        finally:
            await session.close()

    asyncio.run(read())
    return found


def offsets(namesrv: str) -> dict[MessageQueue, int]:
    with evenq.Admin(namesrv) as admin:
        return {part.queue: part.offset for part in admin.progress(GROUP).queues if part.queue.topic in TOPICS}


def has_key(namesrv: str, topic: str, key: str) -> bool:
    with evenq.Admin(namesrv) as admin:
        return len(admin.messages_by_key(topic, key)) == 1


def write(producer: Producer, topic: str, count: int) -> Contents:
    """Send messages in batches, and one with a key of its own; what each queue holds by the receipts."""
    messages = [Message(topic, b"%s %d" % (topic.encode(), number), tags=f"t{number % 3}") for number in range(count)]
    receipts = list(producer.send_batch(messages, split=True))
    messages.append(Message(topic, b"the last one", keys=[f"last-{topic}"]))
    receipts.append(producer.send(messages[-1]))
    placed: dict[MessageQueue, dict[int, bytes]] = {}
    for message, receipt in zip(messages, receipts, strict=True):
        placed.setdefault(receipt.queue, {})[receipt.offset] = message.body
    return {queue: [bodies[offset] for offset in range(len(bodies))] for queue, bodies in placed.items()}


def commit_a_third(namesrv: str, written: Contents) -> dict[MessageQueue, int]:
    third = {queue: len(bodies) // 3 for queue, bodies in written.items()}
    address = brokers(namesrv)["broker-a"]
    for queue, offset in third.items():
        header = UpdateOffset(topic=queue.topic, queue_id=queue.queue_id, consumer_group=GROUP, commit_offset=offset)
        assert ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0
    return third


def waiting(by: str, now: float) -> list[Message]:
    """Messages that are due in a minute: half of them by a level, half by a time."""
    due = datetime.fromtimestamp(now + 60, UTC)
    levels = [Message(LATER, f"{by} level {number}".encode(), delay_level=LEVEL) for number in range(WAITING // 2)]
    return levels + [Message(LATER, f"{by} timer {number}".encode(), deliver_at=due) for number in range(WAITING // 2)]


def delivered(namesrv: str, messages: Iterable[Message]) -> None:
    """Wait until messages that waited are there, and see that each is there once."""
    wanted = sorted(message.body for message in messages)

    def later() -> list[bytes]:
        return sorted(body for bodies in contents(namesrv, [LATER]).values() for body in bodies)

    wait_until(lambda: len(later()) >= len(wanted), lambda: f"{wanted}: there is {later()}")
    assert later() == wanted


def test_a_data_directory_goes_to_the_java_broker_and_back(java: JavaHost, tmp_path: Path) -> None:
    past = Clock()
    past.advance(-HOUR)
    with cluster(data=tmp_path, clock=past.now) as embedded:
        for topic, queues in (TOPICS | {JAVA_TOPIC: 4, LATER: 1}).items():
            create_topic(embedded.namesrv, topic, queues)
        written: Contents = {}
        with Producer(embedded.namesrv) as producer:
            for topic in TOPICS:
                written |= write(producer, topic, COUNT // len(TOPICS))
            postponed = waiting("python", past.now())
            assert all(producer.send(message).ok for message in postponed)
        third = commit_a_third(embedded.namesrv, written)
        assert contents(embedded.namesrv, [LATER]) == {MessageQueue(LATER, "broker-a", 0): []}

    with RealCluster(brokers=1, data=tmp_path) as real:
        assert contents(real.namesrv, TOPICS) == written
        assert offsets(real.namesrv) == third
        assert all(has_key(real.namesrv, topic, f"last-{topic}") for topic in TOPICS)
        delivered(real.namesrv, postponed)
        member = java.push(real.namesrv, GROUP, dict.fromkeys(TOPICS, "*"), batch=32, begin=Begin.LAST, count_only=True)
        left = sum(map(len, written.values())) - sum(third.values())
        wait_until(lambda: member.total().count >= left, lambda: f"{left} messages: {member.total()}", 120)

        flood = java.producer(real.namesrv).flood(JAVA_TOPIC, COUNT, size=20, mode="batch")
        assert (flood.failed, flood.errors) == (0, [])
        java.producer(real.namesrv).send(waiting("java", time.time()))
        keyed = Message(JAVA_TOPIC, b"the last one", keys=["last-of-java"])
        last = java.producer(real.namesrv).send([keyed])
        assert member.total().count == left
        java.stop_clients()
        # a broker shows messages in the order of its log: with the last one, all are there
        wait_shown(real.namesrv, last)
        java_written = contents(real.namesrv, [JAVA_TOPIC])
        assert sum(map(len, java_written.values())) == COUNT + 1
        delivered(real.namesrv, postponed)
        real.stop_broker("broker-a")

    future = Clock()
    future.advance(HOUR)
    with cluster(data=tmp_path, clock=future.now) as embedded:
        assert contents(embedded.namesrv, TOPICS) == written
        assert contents(embedded.namesrv, [JAVA_TOPIC]) == java_written
        assert offsets(embedded.namesrv) == {queue: len(bodies) for queue, bodies in written.items()}
        assert has_key(embedded.namesrv, JAVA_TOPIC, "last-of-java")
        assert has_key(embedded.namesrv, "orders", "last-orders")
        delivered(embedded.namesrv, [*postponed, *waiting("java", 0)])
