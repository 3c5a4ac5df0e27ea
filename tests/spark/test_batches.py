"""A task's work without Spark: ranges to record batches."""

from collections import Counter

import pytest

from evenq.client.reading import QueueRange
from evenq.errors import OffsetsLost
from evenq.model import Message, MessageQueue
from evenq.spark import batches
from evenq.spark.batches import record_batches
from evenq.spark.options import ReadOptions, read_options
from tests.clusters import AnyCluster
from tests.spark.conftest import Send


@pytest.fixture
def least(any_cluster: AnyCluster, topic: str) -> dict[str, str]:
    return {"namesrv": any_cluster.namesrv, "subscribe": topic}


def ranges_of(receipts: Counter[MessageQueue]) -> list[QueueRange]:
    return [QueueRange(queue, 0, count) for queue, count in receipts.items()]


def values(options: ReadOptions, ranges: list[QueueRange]) -> list[bytes]:
    return [value for batch in record_batches(options, ranges) for value in batch.column("value").to_pylist()]


def test_few_large_batches_in_the_order_of_the_queues(
    least: dict[str, str], send: Send, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ROWS", 100)
    receipts = send(Message(topic, b"%d" % n) for n in range(1000))
    ranges = ranges_of(Counter(receipt.queue for receipt in receipts))

    made = list(record_batches(read_options(least), ranges))

    assert sum(map(len, made)) == 1000
    assert all(len(batch) >= 100 for batch in made[:-1])
    found = [
        (broker, number, offset)
        for batch in made
        for broker, number, offset in zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True)
    ]
    assert found == [
        (part.queue.broker, part.queue.queue_id, offset) for part in ranges for offset in range(part.start, part.stop)
    ]


NAMES = ("broker", "queue_id", "offset")


def test_tags_are_compared_by_their_text(least: dict[str, str], send: Send, topic: str) -> None:
    # Java gives both tags the same hash, and a broker compares nothing else
    tags = ["Aa", "BB", "Cc"]
    receipts = send(Message(topic, b"%d" % n, tags=tags[n % 3]) for n in range(300))
    ranges = ranges_of(Counter(receipt.queue for receipt in receipts))

    got = values(read_options(least | {"tags": "Aa || Dd"}), ranges)

    assert Counter(got) == Counter(b"%d" % n for n in range(0, 300, 3))


def test_large_messages_come_whole(least: dict[str, str], send: Send, topic: str) -> None:
    bodies = [bytes([n]) * 700_000 for n in range(12)]
    receipts = send(Message(topic, body) for body in bodies)
    ranges = ranges_of(Counter(receipt.queue for receipt in receipts))
    assert sorted(values(read_options(least), ranges)) == bodies


def test_what_is_gone_is_an_error_or_is_left_out(least: dict[str, str], send: Send, topic: str) -> None:
    receipts = send(Message(topic, b"%d" % n) for n in range(40))
    (queue, count), *_ = Counter(receipt.queue for receipt in receipts).items()
    beyond = [QueueRange(queue, 0, count + 5)]
    with pytest.raises(OffsetsLost, match=f"offsets {count} to {count + 4}"):
        values(read_options(least), beyond)
    assert len(values(read_options(least | {"failOnDataLoss": "false"}), beyond)) == count


def test_leaving_early_is_clean(least: dict[str, str], send: Send, topic: str) -> None:
    receipts = send(Message(topic, b"%d" % n) for n in range(500))
    made = record_batches(read_options(least), ranges_of(Counter(receipt.queue for receipt in receipts)))
    assert len(next(made))
    made.close()
