"""What is damaged where no start looks holds up no reader: it is passed over, and reported once."""

from pathlib import Path

import pytest

from evenq.broker.store import intact
from evenq.broker.store.store import ReadStatus, Store
from evenq.protocol.filters import tag_code
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, decode_messages
from tests.broker.store.messages import LOG_FILE, incoming, open_store, read_through

COUNT = 40
FIELDS = {"size": 0, "magic": 4, "log offset": COMMIT_LOG_OFFSET_AT + 7}


def filled(directory: Path, *, same_size: bool) -> tuple[Store, list[int]]:
    """A store with two queues that lie mixed, and where the messages of the first are."""
    store = open_store(directory)
    places = []
    for number in range(COUNT):
        body = b"%03d" % number * (1 if same_size else number % 7 + 1)
        places.append(store.append(incoming(body, tags="a" if number % 3 else "b")).log_offset)
        store.append(incoming("other", queue_id=1))
    store.settle()
    return store, places


def damage(directory: Path, place: int, at: int) -> None:
    path = directory / "commitlog" / f"{place // LOG_FILE * LOG_FILE:020d}"
    with path.open("r+b") as file:
        file.seek(place % LOG_FILE + at)
        value = file.read(1)[0]
        file.seek(place % LOG_FILE + at)
        file.write(bytes([value ^ 0x10]))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]


@pytest.mark.parametrize("same_size", [True, False])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("when", ["while it runs", "before the checkpoint"])
def test_a_damaged_header_holds_up_no_reader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str, field: str, same_size: bool
) -> None:
    store, places = filled(tmp_path, same_size=same_size)
    sent = read_through(store)
    if when != "while it runs":
        store.checkpoint()()
        store.abandon()
    damage(tmp_path, places[20], FIELDS[field])
    if when != "while it runs":
        store = open_store(tmp_path)
    assert read_through(store) == {offset: body for offset, body in sent.items() if offset != 20}
    read = store.read("orders", 0, 20, 32, 1 << 20)
    assert (read.status, read.next_offset, read.count) == (ReadStatus.NO_MATCH, 21, 0)
    assert store.read("orders", 0, 15, 32, 1 << 20).next_offset == 20
    assert warnings(caplog) == [
        f"{tmp_path}: the message at offset 20 of queue 0 of orders is passed over: "
        f"its record at {places[20]} of the log is damaged"
    ]
    store.close()


@pytest.mark.parametrize("many", [1, 2, 3])
def test_who_goes_on_passes_over_damage(tmp_path: Path, many: int) -> None:
    store, places = filled(tmp_path, same_size=True)
    damage(tmp_path, places[9], FIELDS["magic"])
    damage(tmp_path, places[10], FIELDS["size"])
    found, offset = [], 0
    while offset < COUNT:
        read = store.read("orders", 0, offset, many, 1 << 20)
        assert read.next_offset > offset
        found += [view.queue_offset for view in decode_messages(read.body, check_crc=True)]
        offset = read.next_offset
    assert found == [offset for offset in range(COUNT) if offset not in (9, 10)]
    store.close()


@pytest.mark.parametrize("field", FIELDS)
def test_a_filter_passes_over_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str) -> None:
    store, places = filled(tmp_path, same_size=False)
    damage(tmp_path, places[9], FIELDS[field])
    damage(tmp_path, places[10], FIELDS[field])
    read = store.read("orders", 0, 0, COUNT, 1 << 20, {tag_code("b"), 7})
    found = [view.queue_offset for view in decode_messages(read.body, check_crc=True)]
    assert found == [offset for offset in range(0, COUNT, 3) if offset != 9]
    assert (read.count, read.next_offset) == (len(found), COUNT)
    alone = store.read("orders", 0, 9, 1, 1 << 20, {tag_code("b")})
    assert (alone.status, alone.count) == (ReadStatus.NO_MATCH, 0)
    assert alone.next_offset > 9
    # what the filter leaves out is not looked at
    assert len(warnings(caplog)) == 1
    store.close()


def test_a_large_damage_is_passed_over_in_few_steps_and_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intact, "_REPORTED", 32)
    store, places = filled(tmp_path, same_size=True)
    for place in places[5:35]:
        damage(tmp_path, place, FIELDS["magic"])
    assert store.read("orders", 0, 5, 32, 1 << 20).next_offset == 35
    assert len(warnings(caplog)) == 5
    assert "more of queue 0 of orders up to offset 34" in caplog.text
    for place in places[35:]:
        damage(tmp_path, place, FIELDS["magic"])
    assert store.read("orders", 0, 35, 32, 1 << 20).next_offset == COUNT
    assert len(store._damages._reported) == 32
    store.close()


def test_records_of_the_second_form_are_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    long = "t" * 200
    for topic in (long, "orders"):
        store.append(incoming("x", topic=topic))
    store.settle()
    assert read_through(store, long) == read_through(store) == {0: b"x"}
    store.close()
