"""Dead letters on both brokers: listed, and sent to their group again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from evenq import (
    Admin,
    ArgumentError,
    Message,
    MessageQueue,
    MessageView,
    PartlySent,
    Producer,
    PushConsumer,
    Retry,
    SendResult,
)
from evenq.broker.server import Connection
from evenq.client.admin import DeadLetter
from evenq.protocol.bodies import LockRequest, LockResponse
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import cluster
from tests.clusters import AnyCluster, ask, create_topic
from tests.waiting import wait_until

LONG = b"long " * 2000


def sent_to(namesrv: str, topic: str) -> list[SendResult]:
    """Receipts of four messages, two on each broker: with all that a message may have."""
    with Producer(namesrv) as producer:
        bodies = [b"0", LONG, b"2", b"3"]
        return [
            producer.send(Message(topic, body, tags="paid", keys=[f"k-{n}"], properties={"colour": "red"}, flag=7))
            for n, body in enumerate(bodies)
        ]


def give_up(namesrv: str, group: str, topic: str, *, orderly: bool = False, tries: int = 1) -> None:
    """Let the group consume until four messages are its dead letters."""
    seen: list[MessageView] = []

    def handler(messages: list[MessageView]) -> Retry:
        seen.extend(messages)
        return Retry(delay_level=1 if messages[0].reconsume_times + 1 < tries else -1)

    with PushConsumer(namesrv, group, begin="first") as consumer, Admin(namesrv) as admin:
        consumer.subscribe(topic)
        consumer.start(handler, orderly=orderly)
        wait_until(lambda: len(seen) >= 4 * tries, lambda: f"{4 * tries} calls, but {len(seen)}")
        wait_until(lambda: len(admin.dead_letters(group)) == 4, "four dead letters")


@pytest.fixture
def letters(any_cluster: AnyCluster, admin: Admin, wide: str, group: str) -> tuple[DeadLetter, ...]:
    """Four dead letters of the group, two on each broker."""
    sent_to(any_cluster.namesrv, wide)
    give_up(any_cluster.namesrv, group, wide)
    return admin.dead_letters(group)


def consumed(
    namesrv: str, group: str, topic: str, count: int, again: Callable[[], object], *, orderly: bool = False
) -> list[MessageView]:
    """What the group gets after ``again``: so many messages."""
    seen: list[MessageView] = []
    with PushConsumer(namesrv, group) as consumer:
        consumer.subscribe(topic)
        consumer.start(seen.extend, orderly=orderly)
        with Admin(namesrv) as admin:
            wait_until(lambda: admin.members(group).members, "the member")
        again()
        wait_until(lambda: len(seen) >= count, lambda: f"{count} messages, but {len(seen)}")
    return sorted(seen, key=lambda message: message.keys)


def test_dead_letters_tell_where_they_come_from(any_cluster: AnyCluster, admin: Admin, wide: str, group: str) -> None:
    receipts = sent_to(any_cluster.namesrv, wide)
    began = datetime.now(UTC)
    give_up(any_cluster.namesrv, group, wide, tries=2)
    found = {letter.message.keys[0]: letter for letter in admin.dead_letters(group)}
    assert sorted(found) == ["k-0", "k-1", "k-2", "k-3"]
    for number, receipt in enumerate(receipts):
        letter = found[f"k-{number}"]
        assert (letter.group, letter.topic, letter.tries) == (group, wide, 2)
        assert letter.origin_id == receipt.offset_msg_id
        assert letter.message.topic == f"%DLQ%{group}"
        assert letter.message.stored_at >= began - timedelta(seconds=1)
        assert letter.ids == (receipt.msg_id, receipt.offset_msg_id, letter.message.msg_id)
    assert {letter.message.broker for letter in found.values()} == {"broker-a", "broker-b"}
    assert found["k-1"].message.body == LONG


def test_the_newest_are_given_the_oldest_first(admin: Admin, group: str, letters: tuple[DeadLetter, ...]) -> None:
    times = [letter.message.store_timestamp for letter in letters]
    assert times == sorted(times)
    assert admin.dead_letters(group, limit=3) == letters[-3:]
    assert admin.dead_letters(group, limit=1) == letters[-1:]


def test_they_are_chosen_by_the_time_at_which_they_were_given_up(
    admin: Admin, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    first, last = letters[0].message.stored_at, letters[-1].message.stored_at
    later = timedelta(milliseconds=1)
    assert admin.dead_letters(group, begin=first, end=last) == letters
    assert admin.dead_letters(group, begin=last + later) == ()
    assert admin.dead_letters(group, end=first - later) == ()
    assert admin.dead_letters(group, end=first) == tuple(
        letter for letter in letters if letter.message.stored_at == first
    )


def test_a_group_without_dead_letters_has_none_and_an_unknown_one_is_an_error(admin: Admin, group: str) -> None:
    admin.create_group(group)
    assert admin.dead_letters(group) == ()
    assert admin.resend_dead_letters(group) == ()
    for act in (admin.dead_letters, admin.resend_dead_letters):
        with pytest.raises(ArgumentError, match="no broker knows this consumer group"):
            act(f"{group}-other")


def test_dead_letters_that_may_not_be_read_say_how_they_may(
    admin: Admin, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    # as brokers of RocketMQ 4 make the topic
    admin.update_topic(f"%DLQ%{group}", perm="w")
    with pytest.raises(
        ArgumentError, match=f"on broker-a, broker-b may not be read: .* evenq topic update '%DLQ%{group}' --perm rw"
    ):
        admin.dead_letters(group)
    admin.update_topic(f"%DLQ%{group}", perm="rw")
    assert admin.dead_letters(group) == letters


def test_they_come_to_their_group_again_as_if_they_were_new(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    sent: list[DeadLetter] = []
    seen = consumed(any_cluster.namesrv, group, wide, 4, lambda: sent.extend(admin.resend_dead_letters(group)))
    assert sent == list(letters)
    assert [message.body for message in seen] == [b"0", LONG, b"2", b"3"]
    died = {letter.message.unique_key: letter.message for letter in letters}
    for message in seen:
        before = died[message.unique_key]
        assert (message.topic, message.reconsume_times, message.tags, message.flag) == (wide, 0, "paid", 7)
        assert message.properties["colour"] == "red"
        assert (message.born_timestamp, message.broker) == (before.born_timestamp, before.broker)
    # nothing was published to the topic itself, which other groups read
    assert admin.topic_status(wide).messages == 4
    assert admin.dead_letters(group) == letters


def test_one_is_chosen_by_any_of_its_ids(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    ids = [letters[0].ids[0], letters[1].ids[1], letters[2].ids[2]]
    seen = consumed(
        any_cluster.namesrv, group, wide, 4, lambda: admin.resend_dead_letters(group, [*ids, letters[3], ids[0]])
    )
    assert len(seen) == 4
    with pytest.raises(ArgumentError, match=r"letters='nonsense': group .* has no dead letter with this id"):
        admin.resend_dead_letters(group, [ids[0], "nonsense"])


def test_what_was_given_up_twice_is_sent_once(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    def handler(messages: list[MessageView]) -> Retry:
        return Retry(delay_level=-1)

    with PushConsumer(any_cluster.namesrv, group) as consumer:
        consumer.subscribe(wide)
        consumer.start(handler)
        admin.resend_dead_letters(group)
        wait_until(lambda: len(admin.dead_letters(group)) == 8, "each one twice among the dead letters")
    twice = admin.dead_letters(group)
    assert [letter.tries for letter in twice[4:]] == [1] * 4
    assert {letter.origin_id for letter in twice} == {letter.origin_id for letter in letters}
    assert {letter.topic for letter in twice} == {wide}
    assert admin.resend_dead_letters(group) == twice[4:]


def test_they_come_to_a_group_that_consumes_in_order(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    seen = consumed(any_cluster.namesrv, group, wide, 4, lambda: admin.resend_dead_letters(group), orderly=True)
    assert [message.keys for message in seen] == [(f"k-{n}",) for n in range(4)]
    assert {message.topic for message in seen} == {wide}
    assert admin.dead_letters(group) == letters


def test_they_come_also_while_locks_of_the_group_hold_whose_members_are_gone(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    # brokers give what comes for the retries of such a group to its dead letters
    for broker, address in admin.masters().items():
        queue = MessageQueue(wide, broker, 0)
        body = LockRequest(consumer_group=group, client_id="gone", mq_set=[queue]).encode()
        assert LockResponse.decode(ask(address, RequestCode.LOCK_BATCH_MQ, body=body).body).queues == [queue]
    seen = consumed(any_cluster.namesrv, group, wide, 4, lambda: admin.resend_dead_letters(group))
    assert [message.keys for message in seen] == [(f"k-{n}",) for n in range(4)]
    assert {message.topic for message in seen} == {wide}


@pytest.mark.live
def test_what_could_not_be_sent_is_named(group: str, topic: str) -> None:
    with cluster(brokers=2) as running, Admin(running.namesrv) as admin:
        create_topic(running.namesrv, topic, queues=2)
        sent_to(running.namesrv, topic)
        give_up(running.namesrv, group, topic)
        letters = admin.dead_letters(group)
        running.brokers["broker-a"].faults.add(RequestCode.SEND_MESSAGE_V2, error=ResponseCode.MESSAGE_ILLEGAL, times=1)
        with pytest.raises(PartlySent, match=rf"1 of 4 messages to topic '%RETRY%{group}'") as caught:
            admin.resend_dead_letters(group)
        first = next(letter for letter in letters if letter.message.broker == "broker-a")
        assert [result for result in caught.value.results if isinstance(result, DeadLetter)] == [
            letter for letter in letters if letter != first
        ]
        failed = str(caught.value.results[letters.index(first)])
        assert failed.startswith(f"dead letter {first.message.unique_key} of group {group}: ")
        assert "a fault on purpose" in failed

        running.brokers["broker-a"].faults.add(RequestCode.SEND_MESSAGE_V2, close=True)
        with pytest.raises(PartlySent, match="2 of 4 messages"):
            admin.resend_dead_letters(group)

        running.stop_broker("broker-a")
        wait_until(lambda: list(admin.masters()) == ["broker-b"], "one broker")
        with pytest.raises(PartlySent, match=r"2 of 4 messages.*broker-a: this broker has no master now"):
            admin.resend_dead_letters(group, letters)


@pytest.mark.live
def test_what_was_stored_with_less_safety_is_sent(group: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster() as running, Admin(running.namesrv) as admin:
        create_topic(running.namesrv, topic, queues=2)
        sent_to(running.namesrv, topic)
        give_up(running.namesrv, group, topic)
        (broker,) = running.brokers.values()
        honest = broker.answer_when_durable

        def unsafe(answer: Command, connection: Connection) -> Command | None:
            answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            return honest(answer, connection)

        monkeypatch.setattr(broker, "answer_when_durable", unsafe)
        assert len(admin.resend_dead_letters(group)) == 4


def test_what_a_client_sent_to_the_dead_letters_itself_has_no_topic(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, letters: tuple[DeadLetter, ...]
) -> None:
    with Producer(any_cluster.namesrv) as producer:
        receipt = producer.send(Message(f"%DLQ%{group}", b"by hand", keys=["k-9"]))
    wait_until(lambda: len(admin.dead_letters(group)) == 5, "the fifth")
    last = admin.dead_letters(group)[-1]
    assert (last.topic, last.origin_id, last.tries) == (None, receipt.offset_msg_id, 0)
    seen = consumed(any_cluster.namesrv, group, wide, 1, lambda: admin.resend_dead_letters(group, [receipt.msg_id]))
    assert [message.body for message in seen] == [b"by hand"]


def test_what_makes_no_sense_is_refused(admin: Admin, group: str, letters: tuple[DeadLetter, ...]) -> None:
    with pytest.raises(ArgumentError, match="limit=0"):
        admin.dead_letters(group, limit=0)
    with pytest.raises(ArgumentError, match=r"begin=.*time zone"):
        admin.dead_letters(group, begin=datetime(2026, 1, 1))
    with pytest.raises(ArgumentError, match="give letters or a time, not both"):
        admin.resend_dead_letters(group, letters, begin=datetime.now(UTC))
    other = f"{group}-other"
    admin.create_group(other)
    with pytest.raises(ArgumentError, match=f"it is a dead letter of group '{group}'"):
        admin.resend_dead_letters(other, letters)
