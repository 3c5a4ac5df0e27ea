"""What members answer through brokers, asked with RocketMQ's own admin tool, on both brokers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

import evenq
from evenq import LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer, SendResult, Timeouts
from evenq.protocol import RequestCode
from evenq.protocol.bodies import ConsumerStatusBody
from evenq.protocol.headers import ConsumerStatus
from tests.clusters import AnyCluster, ask, brokers, create_topic
from tests.realmq import JavaHost
from tests.waiting import wait_until

COUNT = 40
# the real broker tells of a reset when the next pull comes
QUICK = Timeouts(hold=1)


class Member:
    """A running member, what it has consumed, and what was sent to it."""

    def __init__(self, namesrv: str, topic: str, group: str) -> None:
        self.namesrv, self.topic, self.group = namesrv, topic, group
        self._lock = threading.Lock()
        self.bodies: list[bytes] = []
        self.fails = False
        with Producer(namesrv) as producer:
            self.sent = [producer.send(Message(topic, b"m-%d" % n, tags="paid")) for n in range(COUNT)]
        self.consumer = PushConsumer(namesrv, group, begin="first", instance="py-1", timeouts=QUICK)
        self.consumer.subscribe(topic, "paid || refunded")
        self.consumer.start(self.handle)
        self.wait_for(COUNT)

    def handle(self, messages: list[MessageView]) -> evenq.Retry | None:
        with self._lock:
            self.bodies += [message.body for message in messages]
        if self.fails:
            raise RuntimeError("on purpose")
        return None

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.bodies) >= count, lambda: f"{count} messages: {len(self.bodies)}")


@pytest.fixture
def member(any_cluster: AnyCluster, topic: str, group: str) -> Iterator[Member]:
    create_topic(any_cluster.namesrv, topic, queues=2)
    made = Member(any_cluster.namesrv, topic, group)
    yield made
    made.consumer.close()


def test_consumer_status_shows_a_python_member(member: Member, java: JavaHost) -> None:
    def printed(*more: str) -> str:
        where = ["-n", member.namesrv, "-g", member.group, "-i", member.consumer.client_id]
        return java.mqadmin("consumerStatus", *where, *more)

    def offsets(text: str) -> dict[tuple[str, int], int]:
        detail = text.partition("#Consumer Offset#")[2].partition("#Consumer MQ Detail#")[0]
        rows = re.findall(rf"{member.topic}\s+(\S+)\s+(\d+)\s+(\d+)", detail)
        return {(broker, int(queue)): int(offset) for broker, queue, offset in rows}

    expected = {(queue.broker, queue.queue_id): 0 for queue in member.consumer.queues}
    for receipt in member.sent:
        expected[receipt.queue.broker, receipt.queue.queue_id] += 1
    wait_until(lambda: offsets(printed()) == expected, lambda: f"{expected}: {printed()}")
    text = printed("-s")
    assert re.search(r"PROP_CONSUME_TYPE\s*: CONSUME_PASSIVELY", text)
    assert re.search(r"PROP_CLIENT_VERSION\s*: evenq ", text)
    assert re.search(rf"Topic: {member.topic}\s+ClassFilter: false\s+SubExpression: paid \|\| refunded", text)
    assert '"MainThread"' in text, "the stacks of the threads, which -s asks for"
    rates = re.search(rf"{member.topic}\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)", text)
    assert rates is not None
    assert float(rates[4]) == pytest.approx(COUNT / 60, abs=0.01)


def test_consumer_progress_shows_what_is_committed(member: Member, java: JavaHost) -> None:
    def lag() -> int:
        text = java.mqadmin("consumerProgress", "-n", member.namesrv, "-g", member.group)
        found = re.search(r"Consume Diff Total: (\d+)", text) or re.search(r"Diff Total: (\d+)", text)
        assert found, text
        return int(found[1])

    wait_until(lambda: lag() == 0, "no lag")


def test_a_reset_of_offsets_is_followed_at_once(member: Member, java: JavaHost) -> None:
    java.mqadmin("resetOffsetByTime", "-n", member.namesrv, "-g", member.group, "-t", member.topic, "-s", "0")
    member.wait_for(2 * COUNT)
    assert sorted(member.bodies) == sorted([b"m-%d" % n for n in range(COUNT)] * 2)


def test_a_message_is_consumed_directly(member: Member, java: JavaHost) -> None:
    receipt: SendResult = member.sent[7]

    def consume() -> str:
        return java.mqadmin(
            "queryMsgById", "-n", member.namesrv, "-i", receipt.offset_msg_id, "-g", member.group,
            "-d", member.consumer.client_id, "-t", member.topic,
        )  # fmt: skip

    assert "consumeResult=CR_SUCCESS" in consume()
    assert member.bodies.count(b"m-7") == 2
    member.fails = True
    assert re.search(r"consumeResult=CR_THROW_EXCEPTION, remark=RuntimeError: on purpose", consume())


def test_where_members_are_is_told(member: Member) -> None:
    found: dict[MessageQueue, int] = {}
    for address in brokers(member.namesrv).values():
        answer = ask(
            address,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            ConsumerStatus(topic=member.topic, group=member.group),
        )
        found |= ConsumerStatusBody.decode(answer.body).consumer_table[member.consumer.client_id]
    assert sorted(found) == member.consumer.queues
    assert sum(found.values()) == COUNT


def test_a_lite_pull_member_answers_too(any_cluster: AnyCluster, java: JavaHost, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        for number in range(10):
            producer.send(Message(topic, b"%d" % number))
    with LitePullConsumer(any_cluster.namesrv, group, begin="first", instance="py-1", timeouts=QUICK) as consumer:
        consumer.subscribe(topic)
        seen: list[bytes] = []

        def poll_until(count: int) -> None:
            def enough() -> bool:
                seen.extend(message.body for message in consumer.poll(0.1))
                return len(seen) >= count

            wait_until(enough, lambda: f"{count} messages: {seen}")

        poll_until(10)
        text = java.mqadmin("consumerStatus", "-n", any_cluster.namesrv, "-g", group, "-i", consumer.client_id)
        assert re.search(r"PROP_CONSUME_TYPE\s*: CONSUME_ACTIVELY", text)
        java.mqadmin("resetOffsetByTime", "-n", any_cluster.namesrv, "-g", group, "-t", topic, "-s", "0")
        poll_until(20)
    assert sorted(seen) == sorted([b"%d" % number for number in range(10)] * 2)
