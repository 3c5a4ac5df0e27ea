"""Topics of the Java broker that store each batch as one record (``+queue.type=BatchCQ``).

Their broker compares tags with those of the record, which has none: a filter lets nothing of a batch through.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

import pytest

import evenq
from evenq.model import Begin, Message
from tests.clusters import create_topic, wait_shown
from tests.realmq import JavaHost, RealCluster
from tests.waiting import wait_until

# Batches of these sizes in turn, and single messages between them: no pull begins where a batch does by chance.
SIZES = (1, 70, 33, 250, 2, 111)
COUNT = 5000


@pytest.fixture
def batched(real_cluster: RealCluster, topic: str) -> str:
    create_topic(real_cluster.namesrv, topic, queues=2, attributes="+queue.type=BatchCQ")
    with evenq.Producer(real_cluster.namesrv, group="batched-tests") as producer:
        receipts: list[evenq.SendResult] = []
        at = turn = 0
        while at < COUNT:
            stop = min(COUNT, at + SIZES[turn % len(SIZES)])
            messages = [Message(topic, b"%d" % number, keys=str(number)) for number in range(at, stop)]
            receipts += producer.send_batch(messages)
            at, turn = stop, turn + 1
    wait_shown(real_cluster.namesrv, receipts)
    return topic


def twice_or_missing(bodies: Iterable[bytes]) -> dict[int, int]:
    seen = Counter(map(int, bodies))
    return {number: seen[number] for number in {*range(COUNT), *seen} if seen[number] != 1}


def test_a_push_consumer_gets_each_message_once(real_cluster: RealCluster, batched: str, group: str) -> None:
    got: list[bytes] = []
    lock = threading.Lock()

    def take(messages: list[evenq.MessageView]) -> None:
        with lock:
            got.extend(message.body for message in messages)

    with evenq.PushConsumer(real_cluster.namesrv, group=group, begin="first") as consumer:
        consumer.subscribe(batched)
        consumer.start(take)
        wait_until(lambda: len(got) >= COUNT, "all messages")
    assert twice_or_missing(got) == {}


@pytest.mark.parametrize("limit", [7, 1000])
def test_polls_get_each_message_once(real_cluster: RealCluster, batched: str, group: str, limit: int) -> None:
    got: list[bytes] = []
    with evenq.LitePullConsumer(real_cluster.namesrv, group=group, begin="first") as consumer:
        consumer.subscribe(batched)
        while len(got) < COUNT:
            found = consumer.poll(limit=limit, timeout=10)
            assert 0 < len(found) <= limit
            got += [message.body for message in found]
        assert consumer.poll(timeout=0.5) == []
    assert twice_or_missing(got) == {}


def test_polls_of_columns_get_each_message_once(real_cluster: RealCluster, batched: str, group: str) -> None:
    got: list[bytes] = []
    with evenq.LitePullConsumer(real_cluster.namesrv, group=group, begin="first") as consumer:
        consumer.subscribe(batched)
        while len(got) < COUNT:
            batch = consumer.poll_arrow(limit=1000, timeout=10)
            assert 0 < len(batch) <= 1000
            got += batch.column("value").to_pylist()
    assert twice_or_missing(got) == {}


def test_a_member_goes_on_within_a_batch(real_cluster: RealCluster, batched: str, group: str) -> None:
    got: list[bytes] = []
    for enough in (COUNT // 3, COUNT):
        with evenq.LitePullConsumer(real_cluster.namesrv, group=group, begin="first") as consumer:
            consumer.subscribe(batched)
            while len(got) < enough:
                got += [message.body for message in consumer.poll(limit=123, timeout=10)]
    assert twice_or_missing(got) == {}


def test_java_sees_the_same(real_cluster: RealCluster, java: JavaHost, batched: str, group: str) -> None:
    member = java.push(real_cluster.namesrv, group, {batched: "*"}, begin=Begin.FIRST)
    assert twice_or_missing(received.message.body for received in member.wait_for(COUNT)) == {}
