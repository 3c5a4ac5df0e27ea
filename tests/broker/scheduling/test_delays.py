import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.scheduling.delays import DelayedMessages
from evenq.broker.store.files import Segment
from evenq.broker.store.levels import SCHEDULE_TOPIC, DelayLevels
from evenq.broker.store.store import NewMessage, StoredMessage
from evenq.protocol.compression import compress
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import decode_messages
from tests.broker.store.messages import bodies, read_all
from tests.broker.stores import Hand, OpenStore, message


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def opened(tmp_path: Path, hand: Hand) -> Iterator[OpenStore]:
    opened = OpenStore(tmp_path / "data", hand)
    yield opened
    opened.end()


def delays(opened: OpenStore) -> DelayedMessages:
    return DelayedMessages(opened.store, opened.clock, opened.commit)


def test_it_is_delivered_when_it_is_due_and_not_before(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    stored = opened.put(message(b"later", queue_id=2, tags="paid", DELAY="3"))
    hand.now += 9.9
    assert not waiting.deliver()
    assert bodies(opened.store, "orders", 2) == []
    hand.now += 0.1
    waiting.deliver()

    (delivered,) = read_all(opened.store, "orders", 2)
    assert (delivered.body, delivered.tags, delivered.store_timestamp) == (b"later", "paid", hand.ms)
    assert (delivered.born_host, delivered.born_timestamp) == ("10.0.0.7:4711", 1_699_999_999_000)
    # a consumer sees that it was delayed, and how
    assert delivered.properties == {"KEYS": "k", "TAGS": "paid", "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "2"}
    assert delivered.prepared_transaction_offset == ~stored.log_offset
    waiting.deliver()
    assert len(bodies(opened.store, "orders", 2)) == 1


def test_an_offset_behind_the_end_of_a_level_stops_nothing(opened: OpenStore, hand: Hand) -> None:
    opened.put(message(b"delivered", DELAY="1"))
    hand.now += 5
    delays(opened).deliver()
    opened.put(message(b"waiting", DELAY="3"))
    opened.end()
    path = opened.directory / "config" / "delayOffset.json"
    path.write_text(json.dumps({"offsetTable": {"1": 99_999_999_999, "3": 99_999_999_999, "-7": 5, "99": 5}}))
    opened.open()
    waiting = delays(opened)
    opened.put(message(b"new", DELAY="1"))
    hand.now += 60
    waiting.deliver()
    assert sorted(bodies(opened.store)) == [b"delivered", b"new", b"waiting"]


def test_levels_do_not_wait_for_each_other(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    for level in (5, 1, 2, 1):
        opened.put(message(b"level %d" % level, DELAY=str(level)))
    seen = []
    for _ in range(61):
        waiting.deliver()
        seen.append(len(bodies(opened.store)))
        hand.now += 1
    assert bodies(opened.store) == [b"level 1", b"level 1", b"level 2", b"level 5"]
    assert [seen.index(count) for count in (2, 3, 4)] == [1, 5, 60]


def test_a_level_beyond_the_highest_is_the_highest(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    opened.put(message(b"late", DELAY="99", TIMER_DELAY_MS="1"))
    (stored,) = read_all(opened.store, SCHEDULE_TOPIC, 17)
    assert stored.properties["DELAY"] == "18"
    assert "TIMER_DELAY_MS" not in stored.properties
    hand.now += 7200
    waiting.deliver()
    assert bodies(opened.store) == [b"late"]


def test_a_compressed_body_stays_as_it_is(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    packed, flags = compress(b"even " * 100, "ZSTD")
    opened.put(message(packed, DELAY="1")._replace(sys_flag=flags))
    hand.now += 1
    waiting.deliver()
    found = opened.store.read("orders", 0, 0, 1, 1 << 20)
    (stored,) = decode_messages(found.body, as_stored=True)
    assert (stored.body, stored.sys_flag & SysFlag.COMPRESSED) == (packed, SysFlag.COMPRESSED)
    assert bodies(opened.store) == [b"even " * 100]


def test_much_is_delivered_in_parts_that_leave_time_for_others(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    for number in range(25):
        opened.put(message(b"%d" % number, DELAY=str(1 + number % 2)))
    hand.now += 5
    assert [waiting.deliver(limit=10) for _ in range(3)] == [True, True, False]
    assert sorted(map(int, bodies(opened.store))) == list(range(25))


def test_offsets_are_saved_as_java_saves_them(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    for _ in range(3):
        opened.put(message(b"x", DELAY="2"))
    hand.now += 5
    waiting.deliver()
    opened.checkpoint()
    saved = json.loads((opened.directory / "config" / "delayOffset.json").read_text())
    assert saved["offsetTable"] == {"2": 3}
    assert saved["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}


def test_nothing_is_saved_where_nothing_was_delayed(opened: OpenStore) -> None:
    delays(opened).deliver()
    opened.checkpoint()
    assert not (opened.directory / "config" / "delayOffset.json").exists()


def test_what_waits_survives_a_restart(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    opened.put(message(b"first", DELAY="1"))
    opened.put(message(b"second", DELAY="2"))
    hand.now += 1
    waiting.deliver()
    opened.end()
    opened.open()
    waiting = delays(opened)
    waiting.deliver()
    assert bodies(opened.store) == [b"first"]
    hand.now += 4
    waiting.deliver()
    assert bodies(opened.store) == [b"first", b"second"]


def test_consume_queues_that_are_made_again_know_when_messages_are_due(opened: OpenStore, hand: Hand) -> None:
    stored_at = hand.ms
    opened.put(message(b"later", DELAY="2", tags="paid"))
    opened.kill()
    hand.now += 3
    opened.open()
    assert opened.store.queue(SCHEDULE_TOPIC, 1).unit(0)[2] == stored_at + 5000


@given(
    moves=st.lists(
        st.sampled_from(["put 1", "put 2", "put 3", "deliver", "1 s", "3 s", "checkpoint", "kill", "restart"]),
        max_size=40,
    )
)
def test_each_message_is_delivered_once_whenever_the_broker_is_killed(
    moves: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    hand = Hand()
    opened = OpenStore(tmp_path_factory.mktemp("delays") / "d", hand, DelayLevels.parse("1s 2s 4s"))
    waiting = delays(opened)
    sent: list[bytes] = []
    for move in [*moves, "3 s", "3 s", "deliver"]:
        match move.split():
            case "put", level:
                sent.append(b"%d" % len(sent))
                opened.put(message(sent[-1], DELAY=level))
            case ["deliver"]:
                waiting.deliver()
            case ["checkpoint"]:
                opened.checkpoint()
            case ["kill" | "restart"]:
                getattr(opened, "kill" if move == "kill" else "end")()
                opened.open()
                waiting = delays(opened)
            case seconds, "s":
                hand.now += int(seconds)
    assert sorted(bodies(opened.store)) == sorted(sent)
    opened.end()


def test_a_copy_that_is_lost_is_delivered_though_a_later_one_is_there(opened: OpenStore, hand: Hand) -> None:
    waiting = delays(opened)
    opened.put(message(b"one", DELAY="1"))
    opened.put(message(b"two", DELAY="1"))
    hand.now += 1
    end = opened.store.log.end
    waiting.deliver()
    opened.kill()
    # the sector with the beginning of the copy was not on the disk
    path = opened.directory / "commitlog" / "0".zfill(20)
    content = path.read_bytes()
    path.write_bytes(content[:end] + bytes(60) + content[end + 60 :])
    for _ in range(2):
        opened.open()
        delays(opened)
        opened.checkpoint()
        opened.kill()
    opened.open()
    delays(opened).deliver()
    assert sorted(bodies(opened.store)) == [b"one", b"two"]


def test_what_the_disk_refuses_is_delivered_later(
    opened: OpenStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = delays(opened)
    opened.put(message(b"later", DELAY="1"))
    hand.now += 1
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "write", _full)
        with pytest.raises(OSError, match="full"):
            waiting.deliver()
    assert bodies(opened.store) == []
    waiting.deliver()
    assert bodies(opened.store) == [b"later"]


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "the disk is full")


def test_a_time_from_a_wrong_clock_does_not_hold_up_what_waits(opened: OpenStore, hand: Hand) -> None:
    hand.now += 86_400
    opened.put(message(b"from tomorrow", DELAY="1"))
    hand.now -= 86_400
    opened.put(message(b"from today", DELAY="1"))
    waiting = delays(opened)
    waiting.deliver()
    assert bodies(opened.store) == [b"from tomorrow"]
    hand.now += 1
    waiting.deliver()
    assert bodies(opened.store) == [b"from tomorrow", b"from today"]


@pytest.mark.parametrize("bad", [{"REAL_TOPIC": "../../../x"}, {"REAL_QID": "1" * 5000}, {"REAL_QID": "-1"}], ids=str)
def test_an_undeliverable_message_keeps_no_other_from_delivery(
    opened: OpenStore, hand: Hand, caplog: pytest.LogCaptureFixture, bad: dict[str, str]
) -> None:
    waiting = delays(opened)
    for body, more in ((b"first", {}), (b"bad", bad), (b"last", {})):
        real = {"REAL_TOPIC": "orders", "REAL_QID": "0", **more}
        opened.store.append(message(body, real, topic=SCHEDULE_TOPIC))
    opened.commit()
    hand.now += 1
    for _ in range(6):
        waiting.deliver()
    assert bodies(opened.store) == [b"first", b"last"]
    assert len(caplog.records) == 1
    assert not (opened.directory.parent / "x").exists()


def test_a_message_that_the_store_refuses_is_skipped(
    opened: OpenStore, hand: Hand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = delays(opened)
    for number in range(5):
        opened.put(message(b"%d" % number, DELAY="1"))
    append = opened.store.append

    def refuse(incoming: NewMessage) -> StoredMessage:
        if incoming.body in (b"1", b"3"):
            raise ValueError("it cannot be stored")
        return append(incoming)

    monkeypatch.setattr(opened.store, "append", refuse)
    hand.now += 1
    for _ in range(6):
        waiting.deliver()
    assert bodies(opened.store) == [b"0", b"2", b"4"]
    assert caplog.text.count("delivering a delayed message failed") == 1
