"""What consumers tell the trace: field by field as Java reads it, and as the tools and the audit find it."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

import evenq
from evenq import Message, MessageView, Producer, PushConsumer, Retry
from evenq.client.consume.consumetrace import TracedCall, after_records, before_records
from evenq.client.consume.dispatch import Outcome
from evenq.client.produce.trace import TRACE_TOPIC
from evenq.protocol.view import make_view
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


def view(offset: int, *, unique: str, keys: str = "", reconsume_times: int = 0) -> MessageView:
    return make_view(
        topic="orders",
        body=b"x",
        queue_offset=offset,
        commit_log_offset=offset,
        properties={"UNIQ_KEY": unique, "KEYS": keys},
        reconsume_times=reconsume_times,
    )


MESSAGES = [view(0, keys="a b", unique="U0"), view(1, unique="U1", reconsume_times=2)]
CALL = TracedCall("CALL", MESSAGES, 1700)


def test_before_a_call_there_is_a_record_of_each_message() -> None:
    first, second = before_records(CALL, "billing")
    assert (first.keys, second.keys) == (("U0", "a", "b"), ("U1",))
    assert first.text.endswith("\x02")
    assert first.text[:-1].split("\x01") == [
        "SubBefore", "1700", "DefaultRegion", "billing", "CALL", "U0", "0", "a b",
    ]  # fmt: skip
    assert second.text[:-1].split("\x01")[5:] == ["U1", "2", ""]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (None, [("true", "0"), ("true", "0")]),
        (Retry(), [("false", "4"), ("false", "4")]),
        ([None, Retry(1)], [("true", "0"), ("false", "4")]),
        ([Retry(1), None], [("false", "4"), ("true", "0")]),
    ],
)
def test_after_it_each_message_has_its_outcome_and_its_share_of_the_time(
    outcome: Outcome, told: list[tuple[str, str]]
) -> None:
    fields = [each.text[:-1].split("\x01") for each in after_records(CALL, "billing", outcome, 1731)]
    assert [each[:4] for each in fields] == [["SubAfter", "CALL", "U0", "15"], ["SubAfter", "CALL", "U1", "15"]]
    assert [(each[4], each[6]) for each in fields] == told
    assert [each[7:] for each in fields] == [["1731", "billing"]] * 2


def test_what_is_not_traced_does_not_lend_its_outcome_to_another() -> None:
    off = msgspec.structs.replace(MESSAGES[0], properties={"TRACE_ON": "false"})
    (only,) = after_records(CALL._replace(given=[off, MESSAGES[1]]), "billing", [Retry(), None], 1731)
    assert only.text.split("\x01")[2:5] == ["U1", "15", "true"]


def trace_of(namesrv: str, topic: str) -> list[list[str]]:
    """All records in a topic of traces."""
    with evenq.LitePullConsumer(namesrv, "trace-reader", begin="first") as reader, evenq.Admin(namesrv) as admin:
        status = admin.topic_status(topic)
        reader.assign([queue.queue for queue in status.queues])
        found: list[MessageView] = []
        for queue in status.queues:
            reader.seek(queue.queue, queue.min_offset)
        while len(found) < status.messages:
            came = reader.poll(10)
            assert came, f"{len(found)} of {status.messages} messages of the trace"
            found += came
    return [record.split("\x01") for message in found for record in message.body.decode().split("\x02") if record]


def test_every_call_is_told_of(any_cluster: AnyCluster, topic: str, group: str) -> None:
    namesrv, trace = any_cluster.namesrv, f"{topic}-trace"
    for name in (topic, trace):
        create_topic(namesrv, name, queues=1)
    with Producer(namesrv) as producer:
        sent = [producer.send(Message(topic, b"%d" % number)) for number in range(10)]
    seen: list[MessageView] = []
    with PushConsumer(namesrv, group, begin="first", batch=4, trace=trace) as consumer:
        consumer.subscribe(topic)
        consumer.start(seen.extend)
        wait_until(lambda: len(seen) >= 10, "all messages")

    def told() -> list[list[str]] | None:
        records = trace_of(namesrv, trace)
        return records if len(records) == 20 else None

    records = wait_until(told, lambda: f"20 records: {trace_of(namesrv, trace)}")
    before = Counter(record[5] for record in records if record[0] == "SubBefore")
    after = Counter(record[2] for record in records if record[0] == "SubAfter")
    assert before == after == Counter(receipt.msg_id for receipt in sent)
    assert {record[4] for record in records if record[0] == "SubBefore"} == {
        record[1] for record in records if record[0] == "SubAfter"
    }


def test_the_usual_topic_is_rocketmqs_and_where_a_broker_has_it_off_nothing_is_told() -> None:
    tracer = evenq.aio.PushConsumer("127.0.0.1:1", "g", trace=True)._tracer
    assert tracer is not None
    assert tracer._log._topic == TRACE_TOPIC
    off = msgspec.structs.replace(MESSAGES[0], properties={"TRACE_ON": "false"})
    assert tracer.began([off, MESSAGES[1]]).messages == [MESSAGES[1]]
