"""An admin client in a namespace, on both brokers: it gives and takes names without it, whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from evenq import Admin, ArgumentError, Message, MessageQueue, MessageView, Producer, PushConsumer, Retry, SendResult
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import BrokerStats
from evenq.protocol.traces import TRACE_TOPIC
from tests.clusters import AnyCluster, route, wait_shown
from tests.waiting import wait_until


@pytest.fixture
def shop(any_cluster: AnyCluster) -> Iterator[Admin]:
    """An admin client in the namespace ``shop``."""
    with Admin(any_cluster.namesrv, namespace="shop") as client:
        yield client


@pytest.fixture
def sent(any_cluster: AnyCluster, shop: Admin, topic: str) -> list[SendResult]:
    """Receipts of four messages to a topic of the namespace, two in the one queue of each broker."""
    shop.create_topic(topic, queues=1)
    with Producer(any_cluster.namesrv, namespace="shop") as producer:
        receipts = [producer.send(Message(topic, b"%d" % n, keys=["k"])) for n in range(4)]
    wait_shown(
        any_cluster.namesrv,
        [
            SendResult(
                status=each.status,
                queue=MessageQueue(f"shop%{topic}", each.queue.broker, each.queue.queue_id),
                offset=each.offset,
                msg_id=each.msg_id,
                offset_msg_id=each.offset_msg_id,
            )
            for each in receipts
        ],
    )
    return receipts


def test_topics_are_made_and_told_without_it(any_cluster: AnyCluster, admin: Admin, shop: Admin, topic: str) -> None:
    admin.create_topic(f"{topic}-outside")
    shop.create_topic(topic, queues=2, order=True)
    assert route(any_cluster.namesrv, f"shop%{topic}") == {"broker-a": 2, "broker-b": 2}
    assert topic in shop.topics()
    assert f"{topic}-outside" not in shop.topics()
    assert f"shop%{topic}" in admin.topics()
    system = set(admin.topics(system=True)) - set(admin.topics())
    assert {name for name in system if "%" not in name} <= set(shop.topics(system=True))
    assert [part.write_queues for part in shop.route(topic)] == [2, 2]
    status = shop.topic_status(topic)
    assert (status.topic, len(status.queues)) == (topic, 4)
    assert {queue.queue.topic for queue in status.queues} == {topic}
    shop.update_topic(topic, queues=3)
    assert [part.write_queues for part in admin.route(f"shop%{topic}")] == [3, 3]
    shop.delete_topic(topic)
    assert f"shop%{topic}" not in admin.topics()


def test_a_name_that_has_it_already_stays_as_it_is(admin: Admin, shop: Admin, topic: str) -> None:
    shop.create_topic(f"shop%{topic}", queues=1)
    assert shop.route(topic) == shop.route(f"shop%{topic}") == admin.route(f"shop%{topic}")
    assert topic in shop.topics()


def test_groups_are_made_and_told_without_it(admin: Admin, shop: Admin, group: str) -> None:
    admin.create_group(f"{group}-outside")
    shop.create_group(group, max_retries=3)
    names = [each.group for each in shop.groups()]
    assert group in names
    assert f"{group}-outside" not in names
    assert "TOOLS_CONSUMER" in [each.group for each in shop.groups(system=True)]
    assert "TOOLS_CONSUMER" not in names
    shop.update_group(group, max_retries=4)
    assert [each.max_retries for each in admin.groups() if each.group == f"shop%{group}"] == [4]
    shop.delete_group(group)
    assert group not in [each.group for each in shop.groups()]
    with pytest.raises(ArgumentError, match=f"group='{group}': no broker knows"):
        shop.update_group(group, consume=True)


def test_messages_are_found_without_it(shop: Admin, topic: str, sent: list[SendResult]) -> None:
    first = sent[0]
    assert first.queue.topic == topic
    assert (shop.message(first.offset_msg_id).topic, shop.message(first.offset_msg_id).body) == (topic, b"0")
    (found,) = shop.messages_at(first.queue, first.offset)
    assert (found.queue, found.body) == (first.queue, b"0")
    by_key = wait_until(
        lambda: each if len(each := shop.messages_by_key(topic, "k")) == 4 else None, "four messages in the index"
    )
    assert {message.topic for message in by_key} == {topic}
    (by_id,) = wait_until(lambda: shop.messages_by_unique_key(topic, first.msg_id), "it in the index")
    assert by_id.topic == topic
    with pytest.raises(ArgumentError, match="has no such queue"):
        shop.messages_at(MessageQueue(topic, "broker-z", 0), 0)


def test_a_group_is_moved_and_its_progress_told_without_it(
    shop: Admin, topic: str, group: str, sent: list[SendResult]
) -> None:
    shop.create_group(group)
    queues = sorted({receipt.queue for receipt in sent})
    moved = shop.reset(group, topic, "last")
    assert [(each.queue, each.after) for each in moved] == [(queue, 2) for queue in queues]
    moved = shop.reset(group, topic, {queues[0]: 1})
    assert [(each.queue, each.before, each.after) for each in moved] == [(queues[0], 2, 1)]
    assert [each.after for each in shop.reset(group, topic, datetime.now(UTC) - timedelta(days=1))] == [0, 0]
    assert shop.consumers(topic) == (group,)
    found = shop.progress(group, topic)
    assert (found.group, found.lag) == (group, 4)
    assert [each.queue for each in found.queues] == queues
    assert [each.queue for each in shop.progress(group).queues] == queues


def test_members_and_what_they_hold_are_told_without_it(
    any_cluster: AnyCluster, shop: Admin, topic: str, group: str, sent: list[SendResult]
) -> None:
    with PushConsumer(any_cluster.namesrv, f"shop%{group}") as consumer:
        consumer.subscribe(f"shop%{topic}")
        consumer.start(lambda messages: None)
        held = wait_until(lambda: each if len(each := shop.holders(group)) >= 2 else None, "the queues held")
        membership = shop.members(group, compare=True)
        progress = shop.progress(group, topic)
    assert membership.group == group
    assert membership.subscriptions == {topic: "*", f"%RETRY%{group}": "*"}
    queues = {receipt.queue for receipt in sent}
    assert queues <= {holder.queue for holder in held}
    assert {each.queue for each in progress.queues if each.holder is not None and each.holder.told} == queues


def test_what_silent_members_hold_is_supposed_by_the_names_that_they_know(
    any_cluster: AnyCluster, shop: Admin, topic: str, group: str
) -> None:
    # this strategy hashes the names of queues
    shop.create_topic(topic, queues=8)
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                PushConsumer(any_cluster.namesrv, f"shop%{group}", instance=name, strategy="CONSISTENT_HASH")
            )
            for name in ("c1", "c2", "c3")
        ]
        for member in members:
            member.subscribe(f"shop%{topic}")
            member.start(lambda messages: None)
            del member._inner._session._answers[RequestCode.GET_CONSUMER_RUNNING_INFO]

        def held() -> set[tuple[str, str, int]]:
            return {
                (member.client_id, queue.broker, queue.queue_id)
                for member in members
                for queue in member.queues
                if queue.topic == f"shop%{topic}"
            }

        def supposed() -> set[tuple[str, str, int]]:
            found = shop.holders(group, strategy="CONSISTENT_HASH")
            assert not any(holder.told for holder in found)
            return {
                (holder.member, holder.queue.broker, holder.queue.queue_id)
                for holder in found
                if holder.queue.topic == topic
            }

        wait_until(lambda: len(held()) == 16 and held() == supposed(), lambda: f"{held()} as {supposed()}")


def test_producers_are_told_without_it(any_cluster: AnyCluster, shop: Admin, topic: str, group: str) -> None:
    shop.create_topic(topic, queues=1)
    with Producer(any_cluster.namesrv, group, namespace="shop") as producer:
        producer.send(Message(topic, b"x"))
        found = wait_until(lambda: shop.producers(group), "the producer")
        assert list(found) == [group]
        assert [client.client_id for client in found[group]] == [producer.client_id]
        assert shop.producers(f"{group}-other") == {}


def test_dead_letters_are_listed_and_sent_again_without_it(
    any_cluster: AnyCluster, shop: Admin, topic: str, group: str, sent: list[SendResult]
) -> None:
    seen: list[MessageView] = []

    def handler(messages: list[MessageView]) -> Retry | None:
        seen.extend(messages)
        return Retry(delay_level=-1) if len(seen) <= 4 else None

    with PushConsumer(any_cluster.namesrv, f"shop%{group}", begin="first") as consumer:
        consumer.subscribe(f"shop%{topic}")
        consumer.start(handler)
        letters = wait_until(lambda: each if len(each := shop.dead_letters(group)) == 4 else None, "dead letters")
        assert {(letter.group, letter.topic, letter.message.topic) for letter in letters} == {
            (group, topic, f"%DLQ%{group}")
        }
        assert {letter.origin_id for letter in letters} == {receipt.offset_msg_id for receipt in sent}
        assert shop.resend_dead_letters(group, letters) == letters
        wait_until(lambda: len(seen) == 8, "all of them again")
    assert {message.topic for message in seen} == {f"shop%{topic}"}


def test_the_trace_of_all_namespaces_is_one_topic(any_cluster: AnyCluster, shop: Admin, topic: str, group: str) -> None:
    shop.create_topic(topic, queues=1)
    with Producer(any_cluster.namesrv, group, namespace="shop", trace=True) as producer:
        receipt = producer.send(Message(topic, b"x"))
    wait_until(lambda: route(any_cluster.namesrv, TRACE_TOPIC), "the topic of the trace")
    found = wait_until(lambda: shop.trace(receipt.msg_id), "the trace")
    assert [(each.group, each.topic) for each in found.sends] == [(group, topic)]


def test_statistics_are_asked_without_it(
    shop: Admin, topic: str, sent: list[SendResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    stats = "evenq.client.admin.cluster.BrokerStats"

    def noted(*, stats_name: str, stats_key: str) -> BrokerStats:
        asked.append((stats_name, stats_key))
        return BrokerStats(stats_name=stats_name, stats_key=stats_key)

    monkeypatch.setattr(stats, noted)
    shop.counters("TOPIC_PUT_NUMS", topic)
    shop.counters("GROUP_GET_LATENCY", f"3@{topic}@billing")
    shop.counters("BROKER_PUT_NUMS", "DefaultCluster")
    assert list(dict.fromkeys(asked)) == [
        ("TOPIC_PUT_NUMS", f"shop%{topic}"),
        ("GROUP_GET_LATENCY", f"3@shop%{topic}@shop%billing"),
        ("BROKER_PUT_NUMS", "DefaultCluster"),
    ]
