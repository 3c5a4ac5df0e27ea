from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.scheduling.transactions import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    Transactions,
    TransactionSettings,
    check_request,
)
from evenq.broker.server import Refusal
from evenq.broker.state.offsets import GroupOffsets
from evenq.broker.state.topics import Topics
from evenq.broker.store.levels import SCHEDULE_TOPIC
from evenq.broker.store.store import NewMessage, StoredMessage
from evenq.model import TransactionState
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import CheckTransaction, EndTransaction
from evenq.protocol.properties import decode_properties
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView
from tests.broker.store.messages import bodies, read_all
from tests.broker.stores import Hand, OpenStore, message

COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK


class OpenTransactions(OpenStore):
    """A store with half messages; offsets are saved with each checkpoint, as a broker does."""

    def __init__(self, directory: Path, hand: Hand, settings: TransactionSettings | None = None) -> None:
        self.hand = hand
        self.settings = settings or TransactionSettings()
        # what producers were asked about
        self.asked: list[MessageView] = []
        super().__init__(directory, hand)

    def open(self) -> None:
        super().open()
        self.offsets = GroupOffsets(self.store.config.load_offsets())
        topics = Topics("DefaultCluster", "broker-a", clock=self.clock)
        self.transactions = Transactions(
            self.store, self.parked, topics, self.offsets, self.clock, self.commit, self.asked.append, self.settings
        )

    def checkpoint(self) -> None:
        self.store.config.save_offsets(self.offsets.table())
        super().checkpoint()

    def end(self) -> None:
        self.store.config.save_offsets(self.offsets.table())
        super().end()

    def prepare(self, body: bytes, **properties: str) -> StoredMessage:
        half = message(body, properties, queue_id=2, tags="paid", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="A1")
        half = half._replace(born_timestamp=self.hand.ms, sys_flag=SysFlag.PREPARED)
        stored = self.transactions.prepare(half, decode_properties(half.properties))
        self.commit()
        return stored

    def finish(
        self,
        half: StoredMessage | MessageView,
        state: TransactionState = COMMIT,
        group: str = "shop",
        asked: bool = False,
    ) -> None:
        """A producer speaks up."""
        log_offset = half.log_offset if isinstance(half, StoredMessage) else half.commit_log_offset
        header = EndTransaction(
            producer_group=group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=log_offset,
            commit_or_rollback=state,
            from_transaction_check=asked,
            msg_id="A1",
        )
        self.transactions.end(header)
        self.commit()

    def check(self, seconds: float) -> list[MessageView]:
        """What producers are asked about after so many seconds."""
        self.hand.now += seconds
        self.asked.clear()
        while self.transactions.check():
            pass
        return list(self.asked)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def opened(tmp_path: Path, hand: Hand) -> Iterator[OpenTransactions]:
    opened = OpenTransactions(tmp_path / "data", hand)
    yield opened
    opened.end()


def test_a_half_message_is_stored_as_java_stores_it(opened: OpenTransactions) -> None:
    opened.prepare(b"half", DELAY="1")
    (half,) = read_all(opened.store, HALF_TOPIC)
    assert half.properties == {
        "KEYS": "k",
        "TAGS": "paid",
        "DELAY": "1",
        "TRAN_MSG": "true",
        "PGROUP": "shop",
        "UNIQ_KEY": "A1",
        "__transactionId__": "A1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }
    assert half.sys_flag == 0
    assert opened.store.bounds("orders", 2) == (0, 0)


def test_a_committed_message_goes_to_its_queue_and_is_noted_as_java_does(opened: OpenTransactions, hand: Hand) -> None:
    opened.prepare(b"other")
    half = opened.prepare(b"half")
    hand.now += 3
    opened.finish(half)

    (final,) = read_all(opened.store, "orders", 2)
    assert (final.body, final.tags, final.store_timestamp) == (b"half", "paid", hand.ms)
    assert final.properties == {
        "KEYS": "k",
        "TAGS": "paid",
        "TRAN_MSG": "true",
        "PGROUP": "shop",
        "UNIQ_KEY": "A1",
        "__transactionId__": "A1",
    }
    assert (final.sys_flag, final.prepared_transaction_offset) == (SysFlag.COMMIT, half.log_offset)
    (note,) = read_all(opened.store, OP_TOPIC)
    assert (note.body, note.tags) == (b"1,", "d")


def test_a_message_that_is_rolled_back_is_gone(opened: OpenTransactions) -> None:
    opened.finish(opened.prepare(b"half"), ROLLBACK)
    assert opened.store.bounds("orders", 2) == (0, 0)
    assert bodies(opened.store, OP_TOPIC) == [b"0,"]
    assert opened.check(3600) == []


def test_a_committed_message_that_is_delayed_waits_from_then_on(opened: OpenTransactions) -> None:
    opened.finish(opened.prepare(b"half", DELAY="1"))
    (waiting,) = read_all(opened.store, SCHEDULE_TOPIC, 0)
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("orders", "2")


def test_ending_twice_has_no_effect(opened: OpenTransactions) -> None:
    half = opened.prepare(b"half")
    opened.finish(half)
    opened.finish(half)
    opened.finish(half, ROLLBACK)
    assert bodies(opened.store, "orders", 2) == [b"half"]
    assert len(bodies(opened.store, OP_TOPIC)) == 1


@pytest.mark.parametrize(
    ("half", "group", "reason"),
    [
        (StoredMessage(0, 17), "shop", "Find prepared transaction message failed"),
        (StoredMessage(0, 0), "others", "The producer group wrong"),
        (StoredMessage(1, 0), "shop", "The transaction state table offset wrong"),
    ],
)
def test_an_end_of_what_is_not_there_is_refused(
    opened: OpenTransactions, half: StoredMessage, group: str, reason: str
) -> None:
    opened.prepare(b"half")
    with pytest.raises(Refusal, match=reason):
        opened.finish(half, group=group)
    assert opened.store.bounds(OP_TOPIC, 0) == (0, 0)


def test_an_ordinary_message_cannot_be_committed(opened: OpenTransactions) -> None:
    plain = opened.put(message(b"plain", PGROUP="shop"))
    with pytest.raises(Refusal, match="Find prepared transaction message failed"):
        opened.finish(plain)


# Producers are asked


def test_a_producer_is_asked_when_the_time_is_up(opened: OpenTransactions) -> None:
    assert opened.check(25) == []
    opened.prepare(b"half")
    assert opened.check(5) == []
    (asked,) = opened.check(30)

    assert asked.queue_offset == 1
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    opened.finish(asked, asked=True)
    (final,) = read_all(opened.store, "orders", 2)
    assert final.body == b"half"
    assert opened.check(3600) == []


def test_a_producer_may_speak_of_the_message_that_it_sent_after_it_was_asked(opened: OpenTransactions) -> None:
    half = opened.prepare(b"half")
    (asked,) = opened.check(30)
    opened.finish(half)
    opened.finish(asked, asked=True)
    assert bodies(opened.store, "orders", 2) == [b"half"]
    assert opened.check(3600) == []


def test_it_is_asked_again_and_again_and_then_the_message_is_given_up(opened: OpenTransactions) -> None:
    opened.prepare(b"half")
    times = [half.properties["TRANSACTION_CHECK_TIMES"] for _ in range(20) for half in opened.check(30)]
    assert times == [str(number) for number in range(1, 16)]
    (given_up,) = read_all(opened.store, GIVEN_UP_TOPIC)
    assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"half", "orders")


def test_what_was_given_up_can_still_be_committed(opened: OpenTransactions) -> None:
    half = opened.prepare(b"half")
    for _ in range(16):
        opened.check(30)
    opened.finish(half)
    assert bodies(opened.store, "orders", 2) == [b"half"]


@pytest.mark.parametrize(("immunity", "first"), [("100", 120), ("1", 30), ("soon", 30)])
def test_a_message_may_say_how_long_its_producer_is_left_alone(
    opened: OpenTransactions, immunity: str, first: int
) -> None:
    opened.prepare(b"half", CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)
    asked = [seconds for seconds in range(30, 180, 30) if opened.check(30)]
    assert asked == list(range(first, 180, 30))


def test_a_producer_that_speaks_up_too_late_must_wait_until_it_is_asked(opened: OpenTransactions, hand: Hand) -> None:
    half = opened.prepare(b"half", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    hand.now += 11
    with pytest.raises(Refusal, match="over 10 s old: wait until you are asked") as refused:
        opened.finish(half)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    (asked,) = opened.check(30)
    opened.finish(asked, asked=True)
    assert bodies(opened.store, "orders", 2) == [b"half"]


def test_what_is_over_need_not_be_looked_at_again(opened: OpenTransactions) -> None:
    ended = [opened.prepare(b"ended") for _ in range(5)]
    for half in ended:
        opened.finish(half)
    opened.prepare(b"open")
    for _ in range(3):
        opened.check(30)
    at = [opened.offsets.get("CID_RMQ_SYS_TRANS", topic, 0) for topic in (HALF_TOPIC, OP_TOPIC)]
    # the open one is stored anew at 6, 7 and 8; what is over by one check is noted at the next
    assert at == [6, 6]
    assert len(opened.check(30)) == 1


def test_much_is_asked_in_parts_that_leave_time_for_others(opened: OpenTransactions, hand: Hand) -> None:
    for _ in range(25):
        opened.prepare(b"half")
    hand.now += 30
    assert [opened.transactions.check(limit=10) for _ in range(4)] == [True, True, False, False]
    assert len(opened.asked) == 25


def test_the_question_has_the_message_as_the_producer_sent_it(opened: OpenTransactions) -> None:
    opened.prepare(b"half")
    (asked,) = opened.check(30)
    command = check_request(asked, "broker-a")
    header = CheckTransaction.from_ext(command.ext)
    assert command.code == RequestCode.CHECK_TRANSACTION_STATE
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, asked.commit_log_offset)
    assert (header.msg_id, header.transaction_id, header.offset_msg_id) == ("A1", "A1", asked.msg_id)
    (sent,) = decode_messages(command.body)
    assert (sent.topic, sent.queue_id, sent.body, sent.tags) == ("orders", 2, b"half", "paid")


# After a restart


def test_half_messages_survive_a_restart(opened: OpenTransactions) -> None:
    halves = [opened.prepare(body) for body in (b"committed", b"rolled back", b"open")]
    opened.finish(halves[0])
    opened.finish(halves[1], ROLLBACK)
    opened.end()
    opened.open()
    opened.finish(halves[0])
    opened.finish(halves[2])
    assert bodies(opened.store, "orders", 2) == [b"committed", b"open"]


def test_how_often_a_producer_was_asked_survives_a_restart(opened: OpenTransactions) -> None:
    first = opened.prepare(b"half")
    opened.check(30)
    opened.check(30)
    opened.end()
    opened.open()
    (asked,) = opened.check(30)
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "3"
    opened.finish(first)
    assert bodies(opened.store, "orders", 2) == [b"half"]
    assert opened.check(30) == []


@given(moves=st.lists(st.sampled_from("prepare commit rollback 10s 30s checkpoint kill restart".split()), max_size=40))
def test_each_message_is_committed_once_whenever_the_broker_is_killed(
    moves: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    opened = OpenTransactions(
        tmp_path_factory.mktemp("transactions") / "d", Hand(), TransactionSettings(check_max=10**6)
    )
    halves: list[StoredMessage] = []
    waiting: list[bytes] = []
    committed: list[bytes] = []
    for move in moves:
        match move:
            case "prepare":
                waiting.append(b"%d" % len(halves))
                halves.append(opened.prepare(waiting[-1]))
            case "commit" | "rollback" if waiting:
                body = waiting.pop(0)
                if move == "commit":
                    committed.append(body)
                for _ in range(2):
                    opened.finish(halves[int(body)], COMMIT if move == "commit" else ROLLBACK)
            case "checkpoint":
                opened.checkpoint()
            case "kill" | "restart":
                getattr(opened, "kill" if move == "kill" else "end")()
                opened.open()
            case "10s" | "30s":
                opened.check(int(move[:2]))
    asked = opened.check(40)
    assert sorted(half.body for half in asked) == sorted(waiting)
    for half in asked:
        opened.finish(half, asked=True)
    assert sorted(bodies(opened.store, "orders", 2)) == sorted(committed + waiting)
    assert opened.check(40) == []
    opened.end()


def test_what_was_given_up_is_committed_once_after_a_kill(opened: OpenTransactions) -> None:
    half = opened.prepare(b"half")
    for _ in range(20):
        opened.check(30)
    opened.checkpoint()
    opened.kill()
    opened.open()
    assert opened.check(30) == []
    for _ in range(2):
        opened.finish(half)
        opened.check(30)
        opened.check(30)
    opened.end()
    opened.open()
    opened.finish(half)
    assert bodies(opened.store, "orders", 2) == [b"half"]
    assert bodies(opened.store, GIVEN_UP_TOPIC) == [b"half"]


@pytest.mark.parametrize("checks", [3, 20], ids=["open", "given up"])
def test_an_answer_to_any_check_counts_after_a_restart(opened: OpenTransactions, checks: int) -> None:
    opened.prepare(b"half")
    asked = [half for _ in range(checks) for half in opened.check(30)]
    opened.end()
    opened.open()
    for half in asked[1:]:
        opened.finish(half, asked=True)
    assert bodies(opened.store, "orders", 2) == [b"half"]


# What an older broker or another one may have stored


def put_half(opened: OpenTransactions, body: bytes, **properties: str) -> StoredMessage:
    """Store a half message as it is, whatever it says."""
    real = {"REAL_TOPIC": "orders", "REAL_QID": "2", "PGROUP": "shop", "UNIQ_KEY": "A1"}
    stored = opened.store.append(
        message(body, {**real, **properties}, topic=HALF_TOPIC)._replace(born_timestamp=opened.hand.ms)
    )
    opened.commit()
    opened.end()
    opened.open()
    return stored


@pytest.mark.parametrize("checks", ["abc", "-1", "1" * 5000])
def test_a_count_of_checks_that_is_none_begins_anew(opened: OpenTransactions, checks: str) -> None:
    half = put_half(opened, b"half", TRANSACTION_CHECK_TIMES=checks)
    (asked,) = opened.check(30)
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    opened.finish(half)
    assert bodies(opened.store, "orders", 2) == [b"half"]


@pytest.mark.parametrize("body", ["1" * 5000, "٣", "x,,-1"])
def test_a_note_that_names_no_half_message_is_passed_over(opened: OpenTransactions, body: str) -> None:
    half = opened.prepare(b"half")
    opened.store.append(message(body.encode(), topic=OP_TOPIC, tags="d"))
    opened.commit()
    opened.end()
    opened.open()
    opened.finish(half)
    assert bodies(opened.store, "orders", 2) == [b"half"]


@pytest.mark.parametrize("first", ["0", "1" * 5000, "7", "-1"])
def test_a_first_offset_that_is_another_messages_is_not_believed(opened: OpenTransactions, first: str) -> None:
    half = opened.prepare(b"mine")
    put_half(opened, b"theirs", TRAN_PREPARED_QUEUE_OFFSET=first, UNIQ_KEY="B2")
    opened.finish(half)
    assert bodies(opened.store, "orders", 2) == [b"mine"]


def test_a_java_brokers_first_offset_is_believed(opened: OpenTransactions) -> None:
    half = put_half(opened, b"half")
    opened.store.append(message(b"0,", topic=OP_TOPIC, tags="d"))
    put_half(opened, b"half", TRAN_PREPARED_QUEUE_OFFSET="0")
    opened.finish(half)
    assert opened.check(30) == []
    assert bodies(opened.store, "orders", 2) == [b"half"]


def test_one_bad_half_message_keeps_no_other_from_checks(
    opened: OpenTransactions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened.prepare(b"bad")
    opened.prepare(b"good")
    append = opened.store.append

    def refuse(incoming: NewMessage) -> StoredMessage:
        if incoming.body == b"bad":
            raise ValueError("it cannot be stored")
        return append(incoming)

    monkeypatch.setattr(opened.store, "append", refuse)
    assert [half.body for half in opened.check(30)] == [b"good"]
    assert caplog.text.count("asking about a half message failed") == 1
