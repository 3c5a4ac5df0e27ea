"""Java consumers read what the producer sent, on both brokers: bytes and properties exactly."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from evenq import Message, MessageView, Producer, PushConsumer, SendResult, TransactionState
from evenq.model import Begin
from evenq.protocol.compression import Compression
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaError, JavaHost, JavaMember
from tests.waiting import wait_until

# What brokers and consumers add to the properties of a message.
ADDED = set(
    "UNIQ_KEY CLUSTER MSG_REGION TRACE_ON MIN_OFFSET MAX_OFFSET CONSUME_START_TIME WAIT "
    "REAL_TOPIC REAL_QID PGROUP TRAN_MSG __transactionId__ TRANSACTION_CHECK_TIMES "
    "TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DELAY_LEVEL "
    "DELAY TIMER_DELIVER_MS".split()
)
EVERY_BYTE = bytes(range(256))


def rich(topic: str, name: str, body: bytes = EVERY_BYTE, **fields: object) -> Message:
    """A message with a bit of everything."""
    return Message(
        topic,
        name.encode() + b"|" + body,
        tags="paid",
        keys=[name, f"{name}-2"],
        properties={"name": name, "ключ": "значение 🚀", "a=b": "c;d", "space ": " kept "},
        flag=7,
        **fields,  # type: ignore[arg-type]
    )


def check_same(received: MessageView, sent: Message) -> None:
    assert received.body == sent.body
    assert received.flag == sent.flag
    own = {name: value for name, value in received.properties.items() if name not in ADDED}
    expected = {name: value for name, value in sent.wire_properties().items() if name not in ADDED}
    assert own == expected


def by_name(member: JavaMember) -> dict[str, list[MessageView]]:
    found: dict[str, list[MessageView]] = defaultdict(list)
    for received in member.messages:
        found[received.message.properties.get("name", "")].append(received.message)
    return found


def test_java_gets_bytes_and_properties_exactly(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic)
    member = java.push(namesrv, group, topic, begin=Begin.FIRST)
    sent: list[Message] = []
    receipts: list[SendResult] = []

    def note(message: Message) -> Message:
        sent.append(message)
        return message

    methods: tuple[Compression, ...] = ("ZLIB", "LZ4", "ZSTD")
    for method in methods:
        with Producer(namesrv, compression=method) as producer:
            receipts.append(producer.send(note(rich(topic, method, EVERY_BYTE * 100))))
    with Producer(namesrv, f"tx-{group}", check=lambda message: TransactionState.UNKNOWN) as producer:
        receipts.append(producer.send(note(rich(topic, "sync"))))
        receipts.append(producer.send_async(note(rich(topic, "async"))).result())
        producer.send_oneway(note(rich(topic, "oneway")))
        receipts += producer.send_batch([note(rich(topic, f"batch-{n}")) for n in range(10)])
        receipts += producer.send_batch([note(rich(topic, f"split-{n}", b"x" * 3000)) for n in range(200)], split=True)
        receipts.append(
            producer.send_in_transaction(note(rich(topic, "committed")), lambda *_: TransactionState.COMMIT)
        )
        producer.send_in_transaction(rich(topic, "rolled-back"), lambda *_: TransactionState.ROLLBACK)
    with Producer(namesrv, linger=0.02) as producer:
        waiting = [producer.send_async(note(rich(topic, f"linger-{n}"))) for n in range(50)]
        receipts += [future.result() for future in waiting]

    member.wait_for(len(sent))
    assert all(receipt.ok for receipt in receipts)
    found = by_name(member)
    assert found.keys() == {message.properties["name"] for message in sent}
    for message in sent:
        (got,) = found[message.properties["name"]]
        check_same(got, message)
    ids = {message.unique_key for messages in found.values() for message in messages}
    assert ids >= {receipt.msg_id for receipt in receipts}


def test_delayed_messages_come_when_they_should(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic)
    member = java.push(namesrv, group, topic, begin=Begin.FIRST)
    member.wait_ready(8)
    with Producer(namesrv) as producer:
        began = time.time()
        due = datetime.now(UTC) + timedelta(seconds=3)
        sent = {
            "now": rich(topic, "now"),
            "level-1": rich(topic, "level-1", delay_level=1),
            "at": rich(topic, "at", deliver_at=due),
        }
        for message in sent.values():
            assert producer.send(message).ok
    came = {each.message.properties["name"]: each for each in member.wait_for(3)}
    # when each came to its queue: a Java member that missed its own heartbeat gets nothing for 20 s, then all at once
    stored = {name: each.message.store_timestamp / 1000 - began for name, each in came.items()}
    assert stored["now"] < stored["level-1"] < stored["at"]
    assert stored["level-1"] >= 0.9
    # the real broker's timer counts in whole seconds
    assert stored["at"] >= 1.9
    for name, received in came.items():
        assert received.at - began >= stored[name]
        check_same(received.message, sent[name])


def test_java_consumes_in_the_order_of_the_sharding_key(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic)
    with Producer(namesrv) as producer:
        queues: dict[str, set[object]] = defaultdict(set)
        for number in range(100):
            key = f"key-{number % 5}"
            receipt = producer.send(Message(topic, b"%d" % number, sharding_key=key))
            queues[key].add(receipt.queue)
    assert {len(found) for found in queues.values()} == {1}
    member = java.push(namesrv, group, topic, begin=Begin.FIRST, orderly=True)
    got: dict[str, list[int]] = defaultdict(list)
    for received in member.wait_for(100):
        got[received.message.properties["__SHARDINGKEY"]].append(int(received.message.body))
    assert got == {f"key-{n}": list(range(n, 100, 5)) for n in range(5)}


def test_python_and_java_choose_the_same_queue_for_a_key(any_cluster: AnyCluster, java: JavaHost, topic: str) -> None:
    create_topic(any_cluster.namesrv, topic)
    other = java.producer(any_cluster.namesrv)
    with Producer(any_cluster.namesrv) as producer:
        for key in ("o-1", "ключ", "🚀", ""):
            ours = producer.send(Message(topic, b"x", sharding_key=key)).queue
            (theirs,) = other.send([Message(topic, b"x")], "ordered", argument=key)
            assert ours == theirs.queue


def test_a_namespace_stands_before_the_names_that_others_see(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, f"shop%{topic}")
    member = java.push(any_cluster.namesrv, group, f"shop%{topic}", begin=Begin.FIRST)
    with Producer(any_cluster.namesrv, namespace="shop") as producer:
        receipt = producer.send(Message(topic, b"in the shop"))
    assert receipt.queue.topic == topic
    (got,) = member.wait_for(1)
    assert got.message.body == b"in the shop"
    assert got.message.properties["INSTANCE_ID"] == "shop"


def test_requests_and_replies_cross_languages(any_cluster: AnyCluster, java: JavaHost, topic: str, group: str) -> None:
    namesrv = any_cluster.namesrv
    to_java, to_python = f"{topic}-java", f"{topic}-python"
    for name in (to_java, to_python):
        create_topic(namesrv, name)
    java.push(namesrv, f"{group}-java", to_java, begin=Begin.FIRST, reply=True).wait_ready(8)
    with (
        Producer(namesrv, f"{group}-asks") as producer,
        PushConsumer(namesrv, f"{group}-python", begin="first") as consumer,
    ):

        def serve(messages: list[MessageView]) -> None:
            for message in messages:
                producer.reply(message, message.body.upper(), properties={"ü": "ö"})

        consumer.subscribe(to_python)
        consumer.start(serve)
        assert producer.request(Message(to_java, b"who is there?"), timeout=45).body == b"WHO IS THERE?"
        reply = java.producer(namesrv).request(Message(to_python, b"who is there?"), timeout=45)
        assert (reply.body, reply.properties["ü"]) == (b"WHO IS THERE?", "ö")


def test_javas_tools_read_the_trace(any_cluster: AnyCluster, java: JavaHost, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic)
    with Producer(any_cluster.namesrv, group, trace=True, check=lambda message: TransactionState.COMMIT) as producer:
        single = producer.send(Message(topic, b"x", tags="t", keys=["k"]))
        batch = producer.send_batch([Message(topic, b"x")] * 2)
        half = producer.send_in_transaction(Message(topic, b"x"), lambda *_: TransactionState.COMMIT)
    for receipt in (single, batch[1], half):

        def told(msg_id: str = receipt.msg_id) -> list[str] | None:
            try:
                printed = java.mqadmin("queryMsgTraceById", "-n", any_cluster.namesrv, "-i", msg_id)
            except JavaError:
                # a broker builds its index a moment after it has stored a message
                return None
            return [line for line in printed.splitlines() if line.startswith("Pub")]

        (line,) = wait_until(told, f"a trace of {receipt.msg_id}")
        kind, producers, host, *_, status = line.split()
        assert (kind, producers, host, status) == ("Pub", group, "127.0.0.1", "success")


def test_javas_tools_read_what_consumers_tell(any_cluster: AnyCluster, java: JavaHost, topic: str, group: str) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic)
    with Producer(namesrv, f"{group}-shop", trace=True) as producer:
        receipt = producer.send(Message(topic, b"x", keys=["k"]))
    seen: list[MessageView] = []
    with PushConsumer(namesrv, group, begin="first", trace=True) as consumer:
        consumer.subscribe(topic)
        consumer.start(seen.extend)
        wait_until(lambda: seen, "the message")

    def told() -> list[str] | None:
        try:
            printed = java.mqadmin("queryMsgTraceById", "-n", namesrv, "-i", receipt.msg_id)
        except JavaError:
            return None
        lines = [line for line in printed.splitlines() if line.startswith(("Pub", "Sub"))]
        return lines if len(lines) == 2 else None

    sent, consumed = wait_until(told, "the sending and the consuming", 60)
    assert sent.split()[:2] == ["Pub", f"{group}-shop"]
    assert consumed.split()[:2] == ["Sub", group]
    assert consumed.split()[-1] == "success"


@pytest.mark.parametrize("size", [1, 4096, 4097, 4 * 1024 * 1024])
def test_bodies_of_all_sizes_arrive_whole(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str, size: int
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    body = (EVERY_BYTE * (size // 256 + 1))[:size]
    with Producer(any_cluster.namesrv) as producer:
        assert producer.send(Message(topic, body)).ok
    member = java.lite_pull(any_cluster.namesrv, group, topic, begin=Begin.FIRST)
    (got,) = member.wait_for(1)
    assert got.message.body == body
