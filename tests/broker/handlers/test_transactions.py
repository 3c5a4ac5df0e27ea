from collections.abc import Callable
from functools import partial

import pytest

from evenq.broker import Broker
from evenq.model import TransactionState
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import ONEWAY, Command
from evenq.protocol.ids import parse_message_id
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages
from evenq.testing import Clock
from tests.broker.peers import Peer
from tests.waiting import wait_until


class Shop:
    """A producer of transactions."""

    def __init__(self, peer: Peer, topic: str, group: str, clock: Clock) -> None:
        self.peer, self.topic, self.group, self.clock = peer, topic, group, clock

    def heartbeat(self) -> None:
        beat = bodies.Heartbeat(
            client_id=self.peer.client_id, producer_data_set=[bodies.ProducerData(group_name=self.group)]
        )
        self.peer.ask(RequestCode.HEART_BEAT, body=beat.encode())

    def prepare(self, body: bytes, **properties: str) -> Command:
        header = headers.SendRequestV2(
            producer_group=self.group,
            topic=self.topic,
            queue_id=1,
            born_timestamp=int(self.clock.now() * 1000),
            sys_flag=4,
            properties=encode_properties({"TRAN_MSG": "true", "PGROUP": self.group, "UNIQ_KEY": "id", **properties}),
        )
        return self.peer.ask(RequestCode.SEND_MESSAGE_V2, header, body)

    def end(self, half: Command, state: TransactionState) -> headers.EndTransaction:
        """What it says about a half message by the answer that it got for it."""
        return headers.EndTransaction(
            topic=self.topic,
            producer_group=self.group,
            tran_state_table_offset=int(half.ext["queueOffset"]),
            commit_log_offset=parse_message_id(half.ext["msgId"])[1],
            commit_or_rollback=state,
            msg_id="id",
        )


@pytest.fixture
def shop(connect: Callable[..., Peer], topic: str, group: str, broker_clock: Clock) -> Shop:
    return Shop(connect("shop-1"), topic, group, broker_clock)


def test_a_half_message_is_for_nobody_until_it_is_committed(shop: Shop, peer: Peer, topic: str) -> None:
    half = shop.prepare(b"half")
    assert (half.code, half.ext["queueId"], half.ext["transactionId"]) == (ResponseCode.SUCCESS, "1", "id")
    assert peer.pull(topic, queue_id=1) == []
    answer = shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.COMMIT))
    assert answer.code == ResponseCode.SUCCESS
    (message,) = peer.pull(topic, queue_id=1)
    assert message.body == b"half"


def test_a_pull_that_waits_for_it_is_answered(shop: Shop, peer: Peer, topic: str) -> None:
    half = shop.prepare(b"half")
    waiting = peer.send(RequestCode.PULL_MESSAGE, peer.pull_header(topic, queue_id=1, wait_ms=20_000))
    shop.peer.send(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.COMMIT), flag=ONEWAY)
    assert peer.answer(waiting).code == ResponseCode.SUCCESS


def test_a_producer_that_does_not_speak_up_is_asked(shop: Shop, peer: Peer, topic: str, broker_clock: Clock) -> None:
    shop.heartbeat()
    shop.prepare(b"half")
    broker_clock.advance(31)
    question = shop.peer.notification()
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.is_oneway
    (message,) = decode_messages(question.body)
    assert (message.topic, message.queue_id, message.body) == (topic, 1, b"half")
    asked = headers.CheckTransaction.from_ext(question.ext)
    answer = headers.EndTransaction(
        producer_group=shop.group,
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=TransactionState.COMMIT,
        from_transaction_check=True,
        msg_id=asked.msg_id or "",
    )
    assert shop.peer.ask(RequestCode.END_TRANSACTION, answer).code == ResponseCode.SUCCESS
    assert [message.body for message in peer.pull(topic, queue_id=1)] == [b"half"]
    broker_clock.advance(31)
    assert shop.peer.silence(0.3)


def test_a_producer_that_does_not_know_yet_is_asked_too(shop: Shop, topic: str, broker_clock: Clock) -> None:
    shop.heartbeat()
    half = shop.prepare(b"half")
    answer = shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.UNKNOWN))
    assert answer.code == ResponseCode.SUCCESS
    broker_clock.advance(31)
    assert shop.peer.notification().code == RequestCode.CHECK_TRANSACTION_STATE
    shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.ROLLBACK))


def test_a_committed_message_may_be_delayed(shop: Shop, peer: Peer, topic: str, broker_clock: Clock) -> None:
    half = shop.prepare(b"half", DELAY="1")
    shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.COMMIT))
    assert peer.pull(topic, queue_id=1) == []
    broker_clock.advance(1)
    (message,) = wait_until(partial(peer.pull, topic, queue_id=1), "the delayed message")
    assert message.body == b"half"


def test_an_end_that_fits_nothing_is_refused(shop: Shop, peer: Peer, topic: str) -> None:
    plain = peer.put(topic, properties=encode_properties({"PGROUP": shop.group}))
    answer = shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(plain, TransactionState.COMMIT))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


def test_what_an_old_client_tries_again_is_no_half_message(shop: Shop, broker: Broker) -> None:
    before = broker.store.bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    header = headers.SendRequestV2(
        producer_group=shop.group,
        topic=shop.topic,
        queue_id=0,
        born_timestamp=1,
        properties=encode_properties({"TRAN_MSG": "true", "DELAY": "3"}),
        reconsume_times=1,
    )
    assert shop.peer.ask(RequestCode.SEND_MESSAGE_V2, header, b"again").code == ResponseCode.SUCCESS
    assert broker.store.bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0) == before


def test_a_transaction_is_ended_by_nobody_elses_half_message(shop: Shop, peer: Peer, topic: str) -> None:
    half = shop.prepare(b"mine")
    shop.prepare(b"theirs", TRAN_PREPARED_QUEUE_OFFSET=half.ext["queueOffset"])
    answer = shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.COMMIT))
    assert answer.code == ResponseCode.SUCCESS
    assert [message.body for message in peer.pull(topic, queue_id=1)] == [b"mine"]


def test_a_count_of_checks_is_not_the_producers(shop: Shop, broker: Broker, broker_clock: Clock) -> None:
    shop.heartbeat()
    half = shop.prepare(b"half", TRANSACTION_CHECK_TIMES="abc", CHECK_IMMUNITY_TIME_IN_SECONDS="9" * 5000)
    assert half.code == ResponseCode.SUCCESS
    stored = broker.store.message_at(parse_message_id(half.ext["msgId"])[1])
    assert stored is not None
    assert stored.properties.keys().isdisjoint({"TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"})
    broker_clock.advance(31)
    assert shop.peer.notification().code == RequestCode.CHECK_TRANSACTION_STATE
    shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.ROLLBACK))


def test_a_commit_long_after_another_has_no_effect(
    shop: Shop, peer: Peer, topic: str, broker: Broker, broker_clock: Clock
) -> None:
    half = shop.prepare(b"half")
    commit = shop.end(half, TransactionState.COMMIT)
    shop.peer.ask(RequestCode.END_TRANSACTION, commit)
    for _ in range(3):
        broker_clock.advance(31)
        wait_until(lambda: broker.transactions._next_check > broker_clock.now(), "a check of half messages")
    assert int(half.ext["queueOffset"]) not in broker.transactions._ended
    assert shop.peer.ask(RequestCode.END_TRANSACTION, commit).code == ResponseCode.SUCCESS
    assert [message.body for message in peer.pull(topic, queue_id=1)] == [b"half"]


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_notes_of_ended_transactions_are_the_brokers_alone(shop: Shop, peer: Peer, topic: str, code: int) -> None:
    half = shop.prepare(b"half")
    note = peer.send_header("RMQ_SYS_TRANS_OP_HALF_TOPIC", properties="TAGS\x01d\x02REPLY_TO_CLIENT\x01shop-1\x02")
    assert peer.ask(code, note, half.ext["queueOffset"].encode()).code == ResponseCode.NO_PERMISSION
    shop.peer.ask(RequestCode.END_TRANSACTION, shop.end(half, TransactionState.COMMIT))
    assert [message.body for message in peer.pull(topic, queue_id=1)] == [b"half"]
