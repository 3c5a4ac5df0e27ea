"""A task's work without Spark: ranges to record batches."""

import threading
from collections import Counter

import pytest

import evenq
from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError, OffsetsLost, RecordError, RemoteError
from evenq.model import Message, MessageQueue
from evenq.protocol import RequestCode
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import SendRequestV2
from evenq.spark import batches
from evenq.spark.batches import record_batches
from evenq.spark.options import ReadOptions, read_options
from tests.clusters import AnyCluster, ask, brokers, create_topic, wait_shown
from tests.realmq import RealCluster
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


def test_a_condition_is_met_on_the_broker(least: dict[str, str], send: Send, topic: str) -> None:
    receipts = send(Message(topic, b"%d" % n, properties={"n": str(n)}) for n in range(100))
    ranges = ranges_of(Counter(receipt.queue for receipt in receipts))
    got = values(read_options(least | {"sql": "n BETWEEN 10 AND 19"}), ranges)
    assert sorted(got) == [b"%d" % n for n in range(10, 20)]


def test_what_is_stored_in_batches_is_filtered_here(real_cluster: RealCluster, topic: str) -> None:
    # brokers look at the tags and properties of the record, and that of a batch has none
    plain = f"{topic}-plain"
    create_topic(real_cluster.namesrv, topic, queues=1, attributes="+queue.type=BatchCQ")
    create_topic(real_cluster.namesrv, plain, queues=1)
    tags = ["Aa", "BB", "Cc"]
    messages = [Message(name, b"%d" % n, tags=tags[n % 3]) for name in (topic, plain) for n in range(300)]
    with evenq.Producer(real_cluster.namesrv, group="p") as producer:
        receipts = [*producer.send_batch(messages[:299]), producer.send(messages[299])]
        receipts += producer.send_batch(messages[300:])
    wait_shown(real_cluster.namesrv, receipts)
    ranges = ranges_of(Counter(receipt.queue for receipt in receipts))
    least = {"namesrv": real_cluster.namesrv, "subscribe": f"{topic},{plain}"}

    assert values(read_options(least), ranges) == [message.body for message in messages]
    for wanted in ("Aa || Dd", "Cc"):
        got = values(read_options(least | {"tags": wanted}), ranges)
        assert got == [message.body for message in messages if message.tags in wanted.split(" || ")]
    with pytest.raises(ArgumentError, match=rf"sql.*each batch of {topic} as one record"):
        values(read_options(least | {"sql": "TAGS = 'Aa'"}), ranges)
    assert len(values(read_options(least | {"sql": "TAGS = 'Aa'"}), ranges[-1:])) == 100


def test_a_message_that_cannot_be_unpacked_is_an_error_or_is_left_out(
    least: dict[str, str], send: Send, topic: str
) -> None:
    receipts = send([Message(topic, b"whole", sharding_key="k")])
    poison(least["namesrv"], receipts[0].queue)
    receipts += send([Message(topic, b"whole", sharding_key="k")])
    ranges = ranges_of(Counter({receipts[0].queue: receipts[-1].offset + 1}))
    with pytest.raises(RecordError, match="message 1 of queue"):
        values(read_options(least), ranges)
    assert values(read_options(least | {"failOnDataLoss": "false"}), ranges) == [b"whole"] * 2


def poison(namesrv: str, queue: MessageQueue) -> None:
    """Store a message that says it is compressed, and is not."""
    header = SendRequestV2(
        producer_group="p",
        topic=queue.topic,
        queue_id=queue.queue_id,
        born_timestamp=0,
        sys_flag=int(SysFlag.COMPRESSED),
    )
    assert ask(brokers(namesrv)[queue.broker], RequestCode.SEND_MESSAGE_V2, header, b"not zlib").code == 0


@pytest.mark.live
def test_a_broker_that_goes_in_the_middle_is_waited_for(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROWS", 1)
    monkeypatch.setattr(batches, "PAUSE", 0.05)
    with evenq.testing.cluster() as cluster:
        create_topic(cluster.namesrv, topic, queues=1)
        (broker,) = cluster.brokers
        with evenq.Producer(cluster.namesrv, group="p") as producer:
            for n in range(3):
                producer.send(Message(topic, b"%d" % n * 700_000))
        whole = [QueueRange(MessageQueue(topic, broker, 0), 0, 3)]
        made = record_batches(read_options({"namesrv": cluster.namesrv, "subscribe": topic}), whole)
        got = next(made).column("offset").to_pylist()
        cluster.stop_broker(broker)
        restarting = threading.Timer(0.5, cluster.start_broker, [broker])
        restarting.start()
        got += [offset for batch in made for offset in batch.column("offset").to_pylist()]
        restarting.join()
        assert got == [0, 1, 2]

        cluster.stop_broker(broker)
        given = {"namesrv": cluster.namesrv, "subscribe": topic, "brokerTimeout": "10ms"}
        with pytest.raises(RemoteError):
            list(record_batches(read_options(given), whole))
        assert list(record_batches(read_options(given | {"failOnDataLoss": "false"}), whole)) == []


def test_large_messages_come_whole(least: dict[str, str], send: Send, topic: str) -> None:
    bodies = [bytes([n]) * 1_000_000 for n in range(12)]
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
