import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.scheduling.parked import TIMER_TOPIC
from evenq.broker.scheduling.timers import Timers
from evenq.broker.server import Refusal
from evenq.broker.store.store import NewMessage, StoredMessage
from tests.broker.store.messages import bodies, read_all
from tests.broker.stores import Hand, OpenStore, message

DAY = 86_400


class OpenTimers(OpenStore):
    """A store with timers whose log has files of 20 units."""

    def open(self) -> None:
        super().open()
        self.timers = Timers(self.store, self.directory, self.clock, self.commit, file_size=20 * 52)

    def end(self) -> None:
        self.timers.finish()
        super().end()
        self.timers.close()

    def kill(self) -> None:
        super().kill()
        self.timers.close()

    def deliver(self) -> None:
        while self.timers.deliver():
            pass


@pytest.fixture
def hand() -> Hand:
    return Hand(1_700_000_000.25)


@pytest.fixture
def opened(tmp_path: Path, hand: Hand) -> Iterator[OpenTimers]:
    opened = OpenTimers(tmp_path / "data", hand)
    yield opened
    opened.end()


@pytest.mark.parametrize(
    ("name", "value", "due"),
    [
        ("TIMER_DELIVER_MS", "1700000005250", 1_700_000_006.0),
        ("TIMER_DELIVER_MS", "1700000005000", 1_700_000_005.0),
        ("TIMER_DELIVER_MS", "1700000005001", 1_700_000_006.0),
        ("TIMER_DELAY_MS", "700", 1_700_000_001.0),
        ("TIMER_DELAY_MS", "750", 1_700_000_001.0),
        ("TIMER_DELAY_SEC", "60", 1_700_000_061.0),
    ],
)
def test_it_is_delivered_with_the_next_whole_second(
    opened: OpenTimers, hand: Hand, name: str, value: str, due: float
) -> None:
    stored = opened.put(message(b"later", {name: value}, queue_id=2, tags="paid"))
    opened.deliver()
    hand.now = due - 0.001
    opened.deliver()
    assert bodies(opened.store, "orders", 2) == []
    hand.now = due
    opened.deliver()

    (delivered,) = read_all(opened.store, "orders", 2)
    assert (delivered.body, delivered.tags, delivered.store_timestamp) == (b"later", "paid", hand.ms)
    assert delivered.properties == {
        "KEYS": "k",
        "TAGS": "paid",
        name: value,
        "TIMER_OUT_MS": str(hand.ms - 1000),
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
        "TIMER_ENQUEUE_MS": "1700000000000",
        "TIMER_DEQUEUE_MS": str(hand.ms),
    }
    assert delivered.prepared_transaction_offset == ~stored.log_offset
    hand.now += 10
    opened.deliver()
    assert len(bodies(opened.store, "orders", 2)) == 1


def test_messages_of_one_second_come_in_the_order_in_which_they_were_sent(opened: OpenTimers, hand: Hand) -> None:
    for number in range(50):
        opened.put(message(b"%d" % number, TIMER_DELAY_SEC=str(1 + number % 2)))
    hand.now += 3
    opened.deliver()
    assert bodies(opened.store) == [b"%d" % number for number in [*range(0, 50, 2), *range(1, 50, 2)]]


def test_much_is_delivered_in_parts_that_leave_time_for_others(opened: OpenTimers, hand: Hand) -> None:
    for number in range(25):
        opened.put(message(b"%d" % number, TIMER_DELAY_SEC="1"))
    while opened.timers.deliver():
        pass
    hand.now += 2
    assert [opened.timers.deliver(limit=10) for _ in range(4)] == [True, True, False, False]
    assert len(bodies(opened.store)) == 25


def test_three_days_are_waited_for_in_two_parts(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"far", TIMER_DELAY_SEC=str(3 * DAY)))
    opened.deliver()
    hand.now += 2 * DAY + 1
    opened.deliver()
    waiting = read_all(opened.store, TIMER_TOPIC)
    assert [again.properties.get("TIMER_ROLL_TIMES") for again in waiting] == [None, "1"]
    assert waiting[1].properties.items() >= waiting[0].properties.items()
    hand.now += DAY - 1
    opened.deliver()
    assert bodies(opened.store) == []
    hand.now += 1
    opened.deliver()
    assert bodies(opened.store) == [b"far"]


def test_a_message_can_be_taken_back_by_another(opened: OpenTimers, hand: Hand) -> None:
    due = {"TIMER_DELIVER_MS": str(hand.ms + 5000)}
    opened.put(message(b"kept", due, UNIQ_KEY="A1"))
    opened.put(message(b"taken back", due, UNIQ_KEY="A2"))
    opened.put(message(b"of another topic", due, topic="others", UNIQ_KEY="A2"))
    opened.put(message(b"", due, UNIQ_KEY="A2", TIMER_DEL_UNIQKEY="orders+A2"))
    with pytest.raises(Refusal, match="may be delivered already"):
        opened.put(message(b"", TIMER_DELIVER_MS="1", TIMER_DEL_UNIQKEY="orders+A1"))
    hand.now += 6
    opened.deliver()
    assert bodies(opened.store) == [b"kept"]
    assert bodies(opened.store, "others") == [b"of another topic"]


def test_how_far_timers_are_is_saved_where_java_looks_for_it(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"soon", TIMER_DELAY_SEC="2"))
    opened.put(message(b"later", TIMER_DELAY_SEC="60"))
    hand.now += 3
    opened.deliver()
    opened.checkpoint()
    page = (opened.directory / "config" / "timercheck").read_bytes()
    assert len(page) == 4096
    assert struct.unpack_from(">qqqq", page) == (1_700_000_003_000, 0, 2, 2)
    unit = (opened.directory / "timerlog" / "0".zfill(20)).read_bytes()[:52]
    assert struct.unpack(">iqiqiqiiq", unit)[:5] == (52, -1, 1, 1_700_000_003_000, -1000)


def test_nothing_is_saved_where_nothing_was_timed(opened: OpenTimers, hand: Hand) -> None:
    hand.now += 10
    opened.deliver()
    opened.checkpoint()
    assert not (opened.directory / "config" / "timercheck").exists()
    assert not (opened.directory / "timerlog").exists()


def test_what_waits_survives_a_restart(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"first", TIMER_DELAY_SEC="1"))
    opened.put(message(b"second", TIMER_DELAY_SEC="10"))
    hand.now += 2
    opened.deliver()
    opened.end()
    (opened.directory / "timerwheel").write_bytes(b"of a Java broker, long ago")
    opened.open()
    assert not (opened.directory / "timerwheel").exists()
    opened.deliver()
    assert bodies(opened.store) == [b"first"]
    hand.now += 9
    opened.deliver()
    assert bodies(opened.store) == [b"first", b"second"]


def test_a_second_that_is_partly_delivered_is_finished_before_the_end(opened: OpenTimers, hand: Hand) -> None:
    for number in range(5):
        opened.put(message(b"%d" % number, TIMER_DELAY_SEC="1"))
    hand.now += 2
    opened.timers.deliver(limit=5)
    opened.timers.deliver(limit=2)
    opened.end()
    opened.open()
    assert bodies(opened.store) == [b"%d" % number for number in range(5)]
    opened.deliver()
    assert len(bodies(opened.store)) == 5


@given(
    moves=st.lists(
        st.sampled_from(
            "put:0 put:1 put:2 put:2 put:5 deliver:1 deliver:2 deliver:100 1s 3s checkpoint kill restart".split()
        ),
        max_size=60,
    )
)
def test_each_message_is_delivered_once_whenever_the_broker_is_killed(
    moves: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    hand = Hand()
    opened = OpenTimers(tmp_path_factory.mktemp("timers") / "d", hand)
    sent: list[bytes] = []
    for move in [*moves, "3s", "3s", "deliver:100"]:
        match move.split(":"):
            case "put", seconds:
                sent.append(b"%d" % len(sent))
                opened.put(message(sent[-1], TIMER_DELAY_SEC=seconds))
            case "deliver", limit:
                opened.timers.deliver(limit=int(limit))
            case ["checkpoint"]:
                opened.checkpoint()
            case ["kill" | "restart"]:
                getattr(opened, "kill" if move == "kill" else "end")()
                opened.open()
            case [seconds]:
                hand.now += int(seconds[0])
    opened.deliver()
    assert sorted(bodies(opened.store)) == sorted(sent)
    opened.end()


def test_a_lost_timer_log_lets_nothing_be_delivered_again(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"later", TIMER_DELAY_SEC="1"))
    hand.now += 3
    opened.deliver()
    opened.kill()
    shutil.rmtree(opened.directory / "timerlog")
    opened.open()
    opened.deliver()
    assert bodies(opened.store) == [b"later"]


def test_nor_is_it_when_the_clock_was_put_back_meanwhile(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"later", TIMER_DELAY_SEC="1"))
    hand.now += 3
    opened.deliver()
    opened.kill()
    shutil.rmtree(opened.directory / "timerlog")
    hand.now -= 10
    opened.open()
    opened.deliver()
    opened.checkpoint()
    opened.kill()
    opened.open()
    hand.now += 20
    opened.deliver()
    assert bodies(opened.store) == [b"later"]


@pytest.mark.parametrize("left", [0, 1])
def test_a_timer_log_that_was_lost_is_made_again(opened: OpenTimers, hand: Hand, left: int) -> None:
    for number in range(4):
        opened.put(message(b"%d" % number, TIMER_DELAY_SEC="1"))
        opened.put(message(b"%d later" % number, TIMER_DELAY_SEC="10"))
    opened.put(message(b"much later", TIMER_DELAY_SEC=f"{50 * 3600}"))
    hand.now += 3
    opened.deliver()
    opened.end()
    path = opened.directory / "timerlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.truncate(left * 3 * 52)
        file.truncate(20 * 52)
    opened.open()
    opened.deliver()
    assert sorted(bodies(opened.store)) == [b"0", b"1", b"2", b"3"]
    hand.now += 10
    opened.deliver()
    opened.end()
    opened.open()
    assert sorted(bodies(opened.store)) == sorted([b"%d" % n for n in range(4)] + [b"%d later" % n for n in range(4)])
    hand.now += 50 * 3600
    opened.deliver()
    assert bodies(opened.store).count(b"much later") == 1
    assert len(bodies(opened.store)) == 9


def test_what_became_due_long_ago_is_delivered_and_stops_nobody(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"rolled", TIMER_DELAY_SEC="259000"))
    opened.put(message(b"long ago", TIMER_DELAY_SEC="5"))
    opened.deliver()
    opened.checkpoint()
    opened.end()
    hand.now += 60 * 86_400
    opened.open()
    opened.put(message(b"soon", TIMER_DELAY_SEC="2"))
    opened.deliver()
    hand.now += 5
    opened.deliver()
    assert sorted(bodies(opened.store)) == [b"long ago", b"rolled", b"soon"]


def test_a_checkpoint_of_timers_that_cannot_be_right_stops_nothing(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"delivered", TIMER_DELAY_SEC="1"))
    hand.now += 10
    opened.deliver()
    opened.put(message(b"waiting", TIMER_DELAY_SEC="30"))
    opened.deliver()
    opened.end()
    (opened.directory / "config" / "timercheck").write_bytes(b"\x7f" * 4096)
    (opened.directory / "config" / "timercheck.bak").unlink(missing_ok=True)
    opened.open()
    hand.now += 60
    opened.deliver()
    assert sorted(bodies(opened.store)) == [b"delivered", b"waiting"]


def test_a_checkpoint_before_the_first_delivery_forgets_nothing_delivered(opened: OpenTimers, hand: Hand) -> None:
    opened.put(message(b"later", TIMER_DELAY_SEC="1"))
    hand.now += 3
    opened.deliver()
    for _ in range(2):
        opened.kill()
        opened.open()
        opened.checkpoint()
    opened.deliver()
    assert bodies(opened.store) == [b"later"]


# What an older broker may have stored


def park(opened: OpenTimers, body: bytes, **properties: str) -> None:
    """Let a message wait as it is, whatever it says."""
    out = {"TIMER_OUT_MS": str(int(opened.clock()) * 1000), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    opened.store.append(message(body, {**out, **properties}, topic=TIMER_TOPIC))
    opened.commit()


BAD = [
    {"TIMER_OUT_MS": "1" * 5000},
    {"TIMER_OUT_MS": "soon"},
    {"REAL_TOPIC": "../../../x"},
    {"REAL_TOPIC": "x" * 256},
    {"REAL_QID": "1" * 5000},
    {"REAL_QID": str(2**31)},
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: next(iter(bad)))
def test_an_undeliverable_message_keeps_no_other_from_delivery(
    opened: OpenTimers, hand: Hand, caplog: pytest.LogCaptureFixture, bad: dict[str, str]
) -> None:
    park(opened, b"first")
    park(opened, b"bad", **bad)
    park(opened, b"last")
    for _ in range(6):
        hand.now += 1
        opened.deliver()
    opened.end()
    opened.open()
    opened.deliver()
    assert bodies(opened.store) == [b"first", b"last"]
    assert len(caplog.records) == 1
    assert not (opened.directory.parent / "x").exists()


def test_a_count_of_rounds_that_is_none_begins_anew(opened: OpenTimers, hand: Hand) -> None:
    for body, rolls in ((b"first", "0"), (b"second", "x"), (b"third", "1" * 5000)):
        park(opened, body, TIMER_OUT_MS=str(hand.ms // 1000 * 1000 + 3 * DAY * 1000 - 1000), TIMER_ROLL_TIMES=rolls)
    opened.deliver()
    for _ in range(6):
        hand.now += 2 * DAY / 5
        opened.deliver()
    rolled = read_all(opened.store, TIMER_TOPIC)[3:]
    assert [(each.body, each.properties["TIMER_ROLL_TIMES"]) for each in rolled] == [
        (b"first", "1"),
        (b"second", "1"),
        (b"third", "1"),
    ]
    hand.now += DAY
    opened.deliver()
    assert bodies(opened.store) == [b"first", b"second", b"third"]


def test_a_message_that_the_store_refuses_is_skipped(
    opened: OpenTimers, hand: Hand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        park(opened, b"%d" % number)
    append = opened.store.append

    def refuse(incoming: NewMessage) -> StoredMessage:
        if incoming.body in (b"1", b"3"):
            raise ValueError("it cannot be stored")
        return append(incoming)

    monkeypatch.setattr(opened.store, "append", refuse)
    for _ in range(6):
        hand.now += 1
        opened.deliver()
    assert bodies(opened.store) == [b"0", b"2", b"4"]
    assert caplog.text.count("delivering a timed message failed") == 1
