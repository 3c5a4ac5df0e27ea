from collections.abc import Iterator
from pathlib import Path

import pytest

from evenq.broker.scheduling.parked import TIMER_TOPIC
from evenq.broker.server import Refusal
from evenq.broker.store.levels import SCHEDULE_TOPIC
from tests.broker.store.messages import bodies, read_all
from tests.broker.stores import Hand, OpenStore, message


@pytest.fixture
def hand() -> Hand:
    return Hand(1_700_000_000.25)


@pytest.fixture
def opened(tmp_path: Path, hand: Hand) -> Iterator[OpenStore]:
    opened = OpenStore(tmp_path / "data", hand)
    yield opened
    opened.end()


def test_a_delayed_message_waits_in_the_queue_of_its_level_as_java_stores_it(opened: OpenStore, hand: Hand) -> None:
    opened.put(message(b"later", queue_id=2, tags="paid", DELAY="3"))

    (waiting,) = read_all(opened.store, SCHEDULE_TOPIC, 2)
    assert waiting.properties == {"KEYS": "k", "TAGS": "paid", "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "2"}
    assert opened.store.queue(SCHEDULE_TOPIC, 2).unit(0)[2] == hand.ms + 10_000
    assert opened.store.bounds("orders", 2) == (0, 0)


def test_level_0_and_below_go_to_their_queue_at_once(opened: OpenStore) -> None:
    opened.put(message(b"zero", DELAY="0"))
    opened.put(message(b"dead letter", DELAY="-1"))
    assert bodies(opened.store) == [b"zero", b"dead letter"]


@pytest.mark.parametrize("level", ["", "soon", "1.5"])
def test_a_level_that_is_no_number_is_refused(opened: OpenStore, level: str) -> None:
    with pytest.raises(Refusal, match=f"DELAY is {level!r}: it must be a whole number"):
        opened.parked.store_or_park(message(b""), {"DELAY": level})
    assert opened.store.log.end == 0


def test_properties_that_leave_no_room_are_refused_before_anything_waits(opened: OpenStore) -> None:
    with pytest.raises(Refusal, match="may have 32639 bytes"):
        opened.put(message(b"", DELAY="1", a="x" * 32_680))
    assert opened.store.log.end == 0


def test_a_timed_message_waits_as_java_stores_it(opened: OpenStore, hand: Hand) -> None:
    opened.put(message(b"later", queue_id=2, tags="paid", TIMER_DELIVER_MS=str(hand.ms + 5000)))

    (waiting,) = read_all(opened.store, TIMER_TOPIC)
    assert waiting.properties == {
        "KEYS": "k",
        "TAGS": "paid",
        "TIMER_DELIVER_MS": "1700000005250",
        "TIMER_OUT_MS": "1700000005000",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }
    assert opened.store.bounds("orders", 2) == (0, 0)


@pytest.mark.parametrize("due", [{"TIMER_DELIVER_MS": "1600000000000"}, {"TIMER_DELAY_MS": "0"}])
def test_what_is_due_already_goes_to_its_queue_at_once(opened: OpenStore, due: dict[str, str]) -> None:
    opened.put(message(b"now", due))
    assert bodies(opened.store) == [b"now"]


def test_what_a_timer_has_delivered_is_not_timed_again(opened: OpenStore) -> None:
    opened.put(message(b"again", TIMER_DELAY_SEC="60", TIMER_OUT_MS="1700000000000"))
    assert bodies(opened.store) == [b"again"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TIMER_DELAY_SEC", "259201", "max delay 259200000ms"),
        ("TIMER_DELIVER_MS", "1700259200251", "max delay 259200000ms"),
        ("TIMER_DELAY_MS", "soon", "TIMER_DELAY_MS is 'soon': it must be a whole number"),
    ],
)
def test_a_time_that_is_too_far_or_none_is_refused(opened: OpenStore, name: str, value: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        opened.put(message(b"never", {name: value}))
    assert opened.store.log.end == 0


@pytest.mark.parametrize("level", ["1_0", " 1", "9" * 5000, str(2**31)], ids=["underscore", "blank", "long", "33 bits"])
def test_only_what_java_reads_as_a_number_is_one(opened: OpenStore, level: str) -> None:
    with pytest.raises(Refusal, match=r"DELAY is .*: it must be a whole number of at most 32 bits"):
        opened.parked.store_or_park(message(b""), {"DELAY": level})
    assert opened.store.log.end == 0
