"""Transactions on both brokers, and what is asked about those that were left open."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

import evenq
from evenq import Message, MessageView, Producer, PushConsumer, SendStatus, TransactionState
from evenq.broker import BrokerSettings
from evenq.broker.scheduling.transactions import TransactionSettings
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import AnyCluster, create_topic
from tests.realmq import RealCluster, Unavailable
from tests.waiting import wait_until

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN

# Ask after a second, every second; and do not ask about what was just ended.
ASK_SOON = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionOpBatchInterval": "100",
    "transactionCheckMax": "100",
}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.interop)])
def asking_cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """A broker that asks soon about transactions that are left open."""
    if request.param == "embedded":
        settings = BrokerSettings(transactions=TransactionSettings(timeout=1.0, check_every=1.0, check_max=100))
        with cluster(settings=settings) as embedded:
            yield embedded
    else:
        try:
            real = RealCluster(brokers=1, conf=ASK_SOON)
        except Unavailable as reason:
            pytest.skip(str(reason))
        with real:
            yield real


class Seen:
    """What a consumer gets, by body."""

    def __init__(self, namesrv: str, topic: str, group: str) -> None:
        self.messages: dict[bytes, MessageView] = {}
        self._consumer = PushConsumer(namesrv, group, begin="first")
        self._consumer.subscribe(topic)
        self._consumer.start(self._take)

    def _take(self, messages: list[MessageView]) -> None:
        for message in messages:
            self.messages[message.body] = message

    def wait_for(self, *bodies: bytes) -> None:
        wait_until(lambda: self.messages.keys() >= set(bodies), lambda: f"{bodies}: there is {list(self.messages)}")

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def seen(any_cluster: AnyCluster, topic: str, group: str) -> Iterator[Seen]:
    create_topic(any_cluster.namesrv, topic)
    consumer = Seen(any_cluster.namesrv, topic, group)
    yield consumer
    consumer.close()


def never(message: MessageView) -> TransactionState:
    raise AssertionError(f"nobody should ask about {message}")


def test_what_is_committed_is_seen_and_what_is_rolled_back_is_not(
    any_cluster: AnyCluster, seen: Seen, topic: str
) -> None:
    ran: list[tuple[bytes, str, threading.Thread]] = []

    def execute(message: Message, transaction_id: str) -> TransactionState:
        ran.append((message.body, transaction_id, threading.current_thread()))
        assert message.body not in seen.messages
        return COMMIT if message.body == b"yes" else ROLLBACK

    with Producer(any_cluster.namesrv, "tx-" + topic, check=never) as producer:
        no = producer.send_in_transaction(Message(topic, b"no"), execute)
        yes = producer.send_in_transaction(
            Message(topic, b"yes", tags="paid", keys=["o-1"], properties={"mine": "ü"}), execute
        )
        producer.send(Message(topic, b"after"))
        seen.wait_for(b"yes", b"after")
    assert (yes.state, no.state, yes.status) == (COMMIT, ROLLBACK, SendStatus.SEND_OK)
    assert b"no" not in seen.messages
    got = seen.messages[b"yes"]
    assert (got.tags, got.keys, got.properties["mine"], got.unique_key) == ("paid", ("o-1",), "ü", yes.msg_id)
    # in the caller's own thread, where its database session is
    assert ran == [
        (b"no", no.transaction_id, threading.current_thread()),
        (b"yes", yes.transaction_id, threading.current_thread()),
    ]


def test_coroutine_functions_are_awaited(any_cluster: AnyCluster, seen: Seen, topic: str) -> None:
    async def execute(message: Message, transaction_id: str) -> TransactionState:
        await asyncio.sleep(0)
        return COMMIT

    async def scenario() -> None:
        async with evenq.aio.Producer(any_cluster.namesrv, "tx-" + topic, check=never) as producer:
            result = await producer.send_in_transaction(Message(topic, b"from aio"), execute)
            assert result.state is COMMIT

    asyncio.run(scenario())
    with Producer(any_cluster.namesrv, "tx-" + topic, check=never) as producer:
        producer.send_in_transaction(Message(topic, b"from sync"), execute)
    seen.wait_for(b"from aio", b"from sync")


@pytest.mark.live
def test_an_open_transaction_is_asked_about_until_it_is_decided(
    asking_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(asking_cluster.namesrv, topic)
    consumer = Seen(asking_cluster.namesrv, topic, group)
    asked: list[bytes] = []

    def check(message: MessageView) -> TransactionState:
        asked.append(message.body)
        assert (message.topic, message.properties["mine"]) == (topic, "ü")
        if asked.count(message.body) == 1:
            raise RuntimeError("the database is down")
        return COMMIT if message.body == b"yes" else ROLLBACK

    def fail(message: Message, transaction_id: str) -> TransactionState:
        raise ZeroDivisionError("in the middle of the work")

    with caplog.at_level(logging.ERROR), Producer(asking_cluster.namesrv, "tx-" + topic, check=check) as producer:
        opened = producer.send_in_transaction(Message(topic, b"no", properties={"mine": "ü"}), lambda *_: UNKNOWN)
        assert opened.state is UNKNOWN
        with pytest.raises(ZeroDivisionError):
            producer.send_in_transaction(Message(topic, b"yes", properties={"mine": "ü"}), fail)
        consumer.wait_for(b"yes")
        wait_until(lambda: asked.count(b"no") >= 2, lambda: f"questions about both: {asked}")
    consumer.close()
    assert consumer.messages.keys() == {b"yes"}
    assert "the database is down" in caplog.text


@pytest.mark.live
def test_another_member_of_the_group_is_asked_when_the_sender_has_gone(
    asking_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(asking_cluster.namesrv, topic)
    consumer = Seen(asking_cluster.namesrv, topic, group)
    with Producer(asking_cluster.namesrv, "tx-" + topic, check=never) as first:
        first.send_in_transaction(Message(topic, b"left behind"), lambda *_: UNKNOWN)
    with Producer(asking_cluster.namesrv, "tx-" + topic, check=lambda message: COMMIT) as second:
        second.send(Message(topic, b"makes it known"))
        consumer.wait_for(b"left behind")
    consumer.close()


@pytest.mark.live
def test_a_half_message_without_full_safety_is_rolled_back_unexecuted(topic: str) -> None:
    with cluster() as running:
        create_topic(running.namesrv, topic)
        with Producer(running.namesrv, check=never) as producer:
            producer.send(Message(topic, b"x"))
            _answer_with(running, ResponseCode.FLUSH_DISK_TIMEOUT)
            result = producer.send_in_transaction(Message(topic, b"x"), lambda *_: pytest.fail("it was executed"))
    assert (result.status, result.state) == (SendStatus.FLUSH_DISK_TIMEOUT, ROLLBACK)


def _answer_with(running: EmbeddedCluster, code: int) -> None:
    """Let the broker's answers to sends have another code: it stored them, with less safety."""
    (broker,) = running.brokers.values()
    honest = broker.answer_when_durable

    def dishonest(answer: evenq.protocol.Command, *rest: object) -> evenq.protocol.Command | None:
        answer.code = code
        return honest(answer, *rest)  # type: ignore[arg-type]

    broker.answer_when_durable = dishonest  # type: ignore[method-assign, assignment]


@pytest.mark.live
def test_an_outcome_that_cannot_be_told_is_logged_and_left_to_the_check(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster() as running:
        create_topic(running.namesrv, topic)
        (broker,) = running.brokers.values()
        broker.faults.add(RequestCode.END_TRANSACTION, error=ResponseCode.SYSTEM_ERROR, remark="the disk is full")
        with Producer(running.namesrv, check=never) as producer:
            result = producer.send_in_transaction(Message(topic, b"x"), lambda *_: COMMIT)
    assert result.state is COMMIT
    assert "COMMIT of transaction" in caplog.text
    assert "the disk is full" in caplog.text


def test_what_a_transaction_needs_is_asked_for() -> None:
    with Producer("127.0.0.1:1") as producer, pytest.raises(evenq.ArgumentError, match=r"check=None.*check=…"):
        producer.send_in_transaction(Message("t", b"x"), lambda *_: COMMIT)
    with (
        Producer("127.0.0.1:1", check=never) as producer,
        pytest.raises(evenq.ArgumentError, match="cannot be delayed"),
    ):
        producer.send_in_transaction(Message("t", b"x", delay_level=1), lambda *_: COMMIT)


def test_a_work_that_does_not_say_what_became_of_it_is_told(any_cluster: AnyCluster, topic: str) -> None:
    with (
        Producer(any_cluster.namesrv, "tx-" + topic, check=lambda message: ROLLBACK) as producer,
        pytest.raises(evenq.ArgumentError, match=r"execute=None: it must return a TransactionState"),
    ):
        producer.send_in_transaction(Message(topic, b"x"), lambda *_: None)  # type: ignore[arg-type]
