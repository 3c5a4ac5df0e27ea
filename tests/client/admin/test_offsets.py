"""Offsets of groups on both brokers: progress, holders, resets with and without members."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from evenq import (
    Admin,
    ArgumentError,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
    SendResult,
    TopicNotFound,
)
from evenq.balance import PublishRoute, as_strategy, assign
from evenq.client.admin import Client, Membership
from evenq.client.admin.offsets import _supposed
from evenq.client.net.routes import Route
from evenq.model import Begin
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import OffsetResponse, QueryOffset
from tests.clusters import AnyCluster, ask
from tests.realmq import JavaHost
from tests.waiting import wait_until


def stored(admin: Admin, group: str, topic: str) -> dict[MessageQueue, int]:
    """What the brokers have for the group, asked of them past the admin client."""
    found = {}
    for broker, address in admin.masters().items():
        for queue_id in range(2):
            header = QueryOffset(consumer_group=group, topic=topic, queue_id=queue_id)
            answer = ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
            found[MessageQueue(topic, broker, queue_id)] = OffsetResponse.from_ext(answer.ext).offset
    return found


@contextmanager
def member(namesrv: str, group: str, topic: str, name: str = "c1") -> Iterator[list[MessageView]]:
    """A member of the group while the block runs; gives what it consumes."""
    got: list[MessageView] = []
    lock = threading.Lock()

    def handler(messages: list[MessageView]) -> None:
        with lock:
            got.extend(messages)

    with PushConsumer(namesrv, group, instance=name, begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        yield got


@pytest.mark.parametrize(("place", "expected"), [("first", 0), ("last", 3)])
def test_a_group_without_members_goes_to_a_place(
    admin: Admin, wide: str, sent: list[SendResult], group: str, place: Any, expected: int
) -> None:
    admin.create_group(group)
    admin.reset(group, wide, {receipt.queue: 1 for receipt in sent})
    moved = admin.reset(group, wide, place)
    queues = sorted({receipt.queue for receipt in sent})
    assert [(each.queue, each.before, each.after) for each in moved] == [(queue, 1, expected) for queue in queues]
    assert stored(admin, group, wide) == dict.fromkeys(queues, expected)


def test_a_consumer_that_starts_after_a_reset_has_nothing_to_warn_of(
    any_cluster: AnyCluster,
    admin: Admin,
    wide: str,
    sent: list[SendResult],
    group: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin.create_group(group)
    admin.reset(group, wide, "first")
    with LitePullConsumer(any_cluster.namesrv, group, begin="last") as consumer:
        consumer.subscribe(wide)
        seen: set[str | None] = set()

        def all_seen() -> bool:
            seen.update(message.unique_key for message in consumer.poll(timeout=0.1))
            return seen == {receipt.msg_id for receipt in sent}

        wait_until(all_seen, "all messages")
    assert "has no offset" not in caplog.text


def test_a_group_without_members_goes_to_a_time(admin: Admin, wide: str, sent: list[SendResult], group: str) -> None:
    admin.create_group(group)
    messages = [admin.message(receipt.offset_msg_id) for receipt in sent]
    time = messages[6].stored_at
    expected = {
        queue: min(
            (each.queue_offset for each in messages if each.queue == queue and each.stored_at >= time), default=3
        )
        for queue in {message.queue for message in messages}
    }
    moved = admin.reset(group, wide, time)
    assert {each.queue: each.after for each in moved} == expected == stored(admin, group, wide)


def test_exact_offsets_move_their_queues_only(
    any_cluster: AnyCluster, admin: Admin, wide: str, sent: list[SendResult], group: str
) -> None:
    admin.create_group(group)
    admin.reset(group, wide, "last")
    queue = sent[0].queue
    assert [(each.queue, each.after) for each in admin.reset(group, wide, {queue: 2})] == [(queue, 2)]
    assert stored(admin, group, wide) == dict.fromkeys({receipt.queue for receipt in sent}, 3) | {queue: 2}
    with member(any_cluster.namesrv, group, wide) as got:
        wait_until(lambda: got, "the one message that is left")
        assert [(message.queue, message.queue_offset) for message in got] == [(queue, 2)]


@pytest.mark.parametrize("kind", ["python", "java"])
def test_members_that_are_online_go_there_too(
    any_cluster: AnyCluster, admin: Admin, wide: str, sent: list[SendResult], group: str, java: JavaHost, kind: str
) -> None:
    def again() -> None:
        admin.reset(group, wide, "first")
        # a member is told with the answer to its next pull: a message to each queue ends the pulls that wait
        with Producer(any_cluster.namesrv) as producer:
            for queue in {receipt.queue for receipt in sent}:
                producer.send(Message(wide, b"wake up"), queue=queue)
        wait_until(lambda: len(bodies()) >= 28, lambda: f"28 messages: {len(bodies())} came")

    if kind == "java":
        theirs = java.push(any_cluster.namesrv, group, wide, begin=Begin.FIRST)

        def bodies() -> list[bytes]:
            return [received.message.body for received in theirs.messages]

        theirs.wait_for(12)
        again()
    else:
        with member(any_cluster.namesrv, group, wide) as got:

            def bodies() -> list[bytes]:
                return [message.body for message in got]

            wait_until(lambda: len(got) >= 12, "all messages once")
            again()
    assert Counter(bodies()) == {b"wake up": 4} | {f"{n}".encode(): 2 for n in range(12)}


def test_progress_tells_offsets_lag_and_time(admin: Admin, wide: str, sent: list[SendResult], group: str) -> None:
    admin.create_group(group)
    first, *others = sorted({receipt.queue for receipt in sent})
    admin.reset(group, wide, dict.fromkeys(others, 3) | {first: 1})
    progress = admin.progress(group)
    assert [(each.queue, each.offset, each.end, each.lag) for each in progress.queues] == [
        (first, 1, 3, 2),
        *((queue, 3, 3, 0) for queue in others),
    ]
    assert progress.lag == 2
    assert {each.holder for each in progress.queues} == {None}
    last = next(receipt for receipt in sent if (receipt.queue, receipt.offset) == (first, 0))
    assert progress.queues[0].consumed_at == admin.message(last.offset_msg_id).stored_at
    assert admin.progress(group, wide).queues == progress.queues
    assert admin.progress(group, f"{wide}-other").queues == ()


def test_the_members_of_a_mixed_group_and_what_they_hold(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, java: JavaHost
) -> None:
    with PushConsumer(any_cluster.namesrv, group, instance="ours") as ours:
        ours.subscribe(wide)
        ours.start(lambda messages: None)
        theirs = java.push(any_cluster.namesrv, group, wide, instance="theirs")
        wait_until(lambda: (len(ours.queues), len(theirs.assignment())) == (2, 2), "two queues for each")
        expected = {(queue, ours.client_id) for queue in ours.queues} | {
            (queue, theirs.client_id) for queue in theirs.assignment()
        }
        found = [holder for holder in admin.holders(group) if holder.queue.topic == wide]
        assert {(holder.queue, holder.member) for holder in found} == expected
        assert {holder.member for holder in found if holder.told} >= {theirs.client_id}


def test_python_members_tell_what_they_hold(any_cluster: AnyCluster, admin: Admin, wide: str, group: str) -> None:
    with member(any_cluster.namesrv, group, wide, "c1"), member(any_cluster.namesrv, group, wide, "c2"):
        wait_until(lambda: len(admin.members(group).members) == 2, "two members")
        names = [client.client_id for client in admin.members(group).members]
        queues = [MessageQueue(wide, broker, n) for broker in ("broker-a", "broker-b") for n in range(2)]
        shares = {(queue, name, True) for name, share in assign("AVG", queues, names).items() for queue in share}

        def found() -> set[tuple[MessageQueue, str | None, bool]]:
            holders = [holder for holder in admin.holders(group) if holder.queue.topic == wide]
            return {(holder.queue, holder.member, holder.told) for holder in holders}

        wait_until(lambda: found() == shares, lambda: f"{shares}: {found()}")


def test_in_broadcasting_everybody_holds_everything() -> None:
    clients = tuple(
        Client(client_id=name, address="", language="OTHER", version="5.4.0", brokers=("broker-a",))
        for name in ("c1", "c2")
    )
    membership = Membership(group="g", model="BROADCASTING", begin=None, subscriptions={"t": "*"}, members=clients)
    queues = tuple(MessageQueue("t", "broker-a", n) for n in range(2))
    route = Route("t", PublishRoute.of(queues), queues, {})
    found = _supposed(membership, [route], as_strategy("AVG"))
    assert {(holder.queue, holder.member, holder.told) for holder in found} == {
        (queue, name, False) for queue in queues for name in ("c1", "c2")
    }


def test_nobody_holds_anything_in_a_group_without_members(admin: Admin, group: str) -> None:
    admin.create_group(group)
    assert admin.holders(group) == ()


def test_what_cannot_be_is_refused_here(admin: Admin, wide: str, sent: list[SendResult], group: str) -> None:
    queue = sent[0].queue
    with pytest.raises(ArgumentError, match=r"group=.*no broker knows this consumer group"):
        admin.reset(group, wide, "first")
    admin.create_group(group)
    cases: list[tuple[Any, str]] = [
        ("begin", "to='begin': give 'first', 'last', a datetime, or offsets by queue"),
        ({}, r"to=\{\}"),
        (datetime(2026, 1, 1), "give a datetime with a time zone"),
        ({queue: 4}, "to=4: .* holds offsets from 0 up to 3"),
        ({queue: -1}, "to=-1: .* holds offsets from 0 up to 3"),
        ({MessageQueue(wide, queue.broker, 2): 0}, "queueId=2.* has no such queue"),
    ]
    for place, complaint in cases:
        with pytest.raises(ArgumentError, match=complaint):
            admin.reset(group, wide, place)
    with pytest.raises(ArgumentError, match="strategy='AVERAGE'"):
        admin.holders(group, strategy="AVERAGE")
    with pytest.raises(TopicNotFound):
        admin.reset(group, f"{wide}-other", datetime.now(UTC))


def test_the_progress_of_an_unknown_group_is_an_error(admin: Admin, group: str) -> None:
    with pytest.raises(ArgumentError, match="no broker knows this consumer group"):
        admin.progress(group)
