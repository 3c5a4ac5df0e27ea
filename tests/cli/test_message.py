"""``evenq message``."""

from __future__ import annotations

import pytest

from evenq import Message, MessageView, Producer, PushConsumer, SendResult, TransactionState
from evenq.protocol.traces import RecallRecord
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.waiting import wait_until


@pytest.fixture
def sent(any_cluster: AnyCluster, topic: str) -> list[SendResult]:
    """Receipts of three messages in a queue each; the second has much to tell."""
    create_topic(any_cluster.namesrv, topic, queues=1)
    with Producer(any_cluster.namesrv) as producer:
        receipts = [
            producer.send(Message(topic, b"one")),
            producer.send(Message(topic, b"x" * 100, tags="paid", keys=["o-1", "o-2"], properties={"colour": "red"})),
        ]
    wait_shown(any_cluster.namesrv, receipts)
    return receipts


def test_a_message_is_shown_whole(at_cluster: Evenq, topic: str, sent: list[SendResult]) -> None:
    receipt = sent[1]
    lines = [line.split() for line in at_cluster("message", "get", receipt.offset_msg_id)]
    assert ["topic", topic] in lines
    assert ["unique", "key", receipt.msg_id] in lines
    assert ["keys", "o-1,", "o-2"] in lines
    assert ["colour", "red"] in lines
    assert lines[-1] == ["x" * 100]
    found = wait_until(
        lambda: at_cluster.run("message", "get", receipt.msg_id, "--topic", topic, "--body")[1], "it in the index"
    )
    assert found == "x" * 100
    assert "no message with this unique key" in at_cluster.error("message", "get", "0" * 32, "--topic", topic)


def test_messages_are_listed(at_cluster: Evenq, topic: str, sent: list[SendResult]) -> None:
    lines = wait_until(
        lambda: found if len(found := at_cluster("message", "find", topic, "o-1")) > 1 else None, "it in the index"
    )
    (line,) = lines[1:]
    assert line.split()[0] == f"{sent[1].queue.broker}:0"
    assert line.endswith("x" * 59 + "…")
    queue = f"{sent[0].queue.broker}:0"
    assert [each["body"] for each in at_cluster.json("message", "read", topic, queue, "0")] == ["one"]


def test_the_trace_of_a_message_is_shown(at_cluster: Evenq, any_cluster: AnyCluster, topic: str, group: str) -> None:
    trace = f"{topic}-trace"
    for name in (topic, trace):
        create_topic(any_cluster.namesrv, name, queues=1)
    seen: list[MessageView] = []
    with Producer(any_cluster.namesrv, "shop", trace=trace, check=lambda _: TransactionState.COMMIT) as producer:
        receipt = producer.send_in_transaction(Message(topic, b"one"), lambda *_: TransactionState.COMMIT)
        taken_back = RecallRecord(1_700_000_000_000, "R", "shop", topic, receipt.msg_id, True).encode()
        producer.send(Message(trace, taken_back.encode(), keys=[receipt.msg_id]))
    with PushConsumer(any_cluster.namesrv, group, begin="first", trace=trace) as consumer:
        consumer.subscribe(topic)
        consumer.start(seen.extend)
        wait_until(lambda: seen, "the message")

    def shown() -> list[str] | None:
        code, out, _ = at_cluster.run("message", "trace", receipt.msg_id, "--topic", trace)
        return out.splitlines() if code == 0 and "SUCCESS" in out and "HALF" in out and "taken back" in out else None

    lines = [line.split() for line in wait_until(shown, "the whole trace")]
    starts = {line[0]: number for number, line in enumerate(lines) if line and line[0].isalpha()}
    send, end, recall, call = (lines[starts[word] + 1] for word in ("sent", "transaction", "taken", "consumed"))
    assert send[2:6] == ["shop", "127.0.0.1", topic, receipt.queue.broker]
    assert send[-2:] == ["HALF", "SEND_OK"]
    assert end[2:] == ["shop", "127.0.0.1", "COMMIT_MESSAGE", "no"]
    assert recall[2:] == ["shop", "127.0.0.1", "yes"]
    assert (call[2], call[4], call[-1]) == (group, "0", "SUCCESS")
    assert consumer.client_id.startswith(call[3])
    as_json = at_cluster.json("message", "trace", receipt.msg_id, "--topic", trace)
    assert [each["outcome"] for each in as_json["deliveries"]] == ["SUCCESS"]


def test_a_message_without_a_trace_says_what_to_do(at_cluster: Evenq, any_cluster: AnyCluster, topic: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    complaint = at_cluster.error("message", "trace", "0" * 32, "--topic", topic)
    assert f"topic {topic} tells nothing of it: clients tell the trace with trace=True" in complaint
    complaint = at_cluster.error("message", "trace", "0" * 32, "--topic", f"{topic}-other")
    assert "there is no such topic: clients tell the trace with trace=True" in complaint
