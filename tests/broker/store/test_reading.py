"""Reads give what is wanted and whole; reading ahead gives what reading gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from evenq.broker.store import reading
from evenq.broker.store.consumequeue import UNIT
from evenq.broker.store.reading import Selection, select
from evenq.broker.store.store import ReadStatus, Store
from evenq.protocol.filters import tag_code
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, decode_messages
from tests.broker.store.messages import LOG_FILE, incoming, open_store, read_through

QUEUES = 3
queues = st.integers(0, QUEUES - 1)
counts = st.integers(1, 5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


class Reading(RuleBasedStateMachine):
    """Somebody writes to queues whose messages lie mixed, and readers go on where they were, or begin anywhere."""

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        self.store = open_store(Path(self.folder.name))
        self.numbers = count()
        self.begin_again(0)
        for queue in range(QUEUES):
            self.write(queue, 1, 0)
        self.sent: dict[int, list[bytes]]

    @rule(queue=queues)
    def begin_again(self, queue: int) -> None:
        """The topic is deleted, and there is a new one of its name."""
        self.store.delete_topic("orders")
        self.sent = {queue: [] for queue in range(QUEUES)}
        self.place = dict.fromkeys(range(QUEUES), 0)

    @rule(queue=queues, many=st.integers(1, 12), size=st.integers(0, 300))
    def write(self, queue: int, many: int, size: int) -> None:
        for _ in range(many):
            body = b"%d " % next(self.numbers) + b"x" * size
            assert self.store.append(incoming(body, queue_id=queue)).queue_offset == len(self.sent[queue])
            self.sent[queue].append(body)
        self.store.commit()

    @rule(queue=queues, many=counts, most=st.sampled_from([1, 500, 1 << 20]), times=counts)
    def go_on(self, queue: int, many: int, most: int, times: int) -> None:
        for _ in range(times):
            if self.place[queue] < len(self.sent[queue]):
                self.place[queue] = self.read(queue, self.place[queue], many, most)

    @rule(queue=queues, many=counts, at=st.floats(0, 1, exclude_max=True))
    def read_anywhere(self, queue: int, many: int, at: float) -> None:
        if self.sent[queue]:
            self.read(queue, int(len(self.sent[queue]) * at), many, 1 << 20)

    def read(self, queue: int, offset: int, many: int, most: int) -> int:
        found = self.store.read("orders", queue, offset, many, most)
        messages = decode_messages(found.body)
        wanted = self.sent[queue][offset : offset + many]
        assert len(messages) == found.count > 0
        assert [message.body for message in messages] == wanted[: found.count]
        assert [message.queue_offset for message in messages] == list(range(offset, found.next_offset))
        if len(messages) < len(wanted):
            assert len(found.body) + self.size_of(queue, found.next_offset) > most
        assert len(messages) == 1 or len(found.body) <= most
        return found.next_offset

    def size_of(self, queue: int, offset: int) -> int:
        return self.store.queue("orders", queue).unit(offset)[1]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestReading = Reading.TestCase


def test_little_is_kept_however_many_queues_there_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_QUEUES", 4)
    for queue in range(9):
        for number in range(40):
            store.append(incoming(b"%d" % number, queue_id=queue))
    store.commit()
    for queue in range(9):
        for offset in (0, 2, 4):
            store.read("orders", queue, offset, 2, 1 << 20)
    assert len(store._ahead._kept) == len(store._ahead._reached) == 4
    [kept, *_] = store._ahead._kept.values()
    assert (kept.offset, len(kept.ends)) == (2, 2 * reading._TIMES)


# the gap in front of each message in the log, its size, and the hash of its tag
messages = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 50]), st.integers(91, 130), st.integers(0, 2)), min_size=1, max_size=100
) | st.integers(1, 100).map(lambda count: [(0, 100, 0)] * count)


def units_of(found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    units = []
    position = 1000
    for gap, size, code in found:
        position += gap
        units.append((position, size, code))
        position += size
    return units


def covered(selection: Selection) -> list[int]:
    return [at for position, size in selection.pieces for at in range(position, position + size)]


@given(messages, st.integers(1, 110), st.integers(1, 12_000), st.none() | st.frozensets(st.integers(0, 2)))
def test_as_many_as_asked_for_and_as_fit(
    found: list[tuple[int, int, int]], count: int, max_bytes: int, codes: frozenset[int] | None
) -> None:
    units = units_of(found)
    selection = select(b"".join(UNIT.pack(*unit) for unit in units), count, max_bytes, codes)
    wanted = [unit for unit in units if codes is None or unit[2] in codes]
    chosen, left = wanted[: selection.found], wanted[selection.found :]
    assert covered(selection) == [at for position, size, _ in chosen for at in range(position, position + size)]
    assert selection.found <= count
    assert selection.found <= 1 or sum(size for _, size, _ in chosen) <= max_bytes
    if left:
        assert chosen
        assert selection.found == count or sum(size for _, size, _ in [*chosen, left[0]]) > max_bytes
        assert units.index(chosen[-1]) < selection.seen <= units.index(left[0])
    else:
        assert selection.seen == len(units)


def test_messages_side_by_side_are_one_piece() -> None:
    wire = b"".join(UNIT.pack(number * 100, 100, 0) for number in range(70))
    assert len(select(wire, 32, 1 << 20).pieces) == 1
    assert len(select(wire, 70, 1 << 20).pieces) == 3


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
    store.commit()
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
    assert [view.queue_offset for view in decode_messages(alone.body)] == [12]
    assert alone.next_offset > 12
    # what the filter leaves out is not looked at
    assert len(warnings(caplog)) == 1
    store.close()


def test_a_large_damage_is_passed_over_in_few_steps_and_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_REPORTED", 32)
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
    store.commit()
    assert read_through(store, long) == read_through(store) == {0: b"x"}
    store.close()


def tagged(store: Store) -> set[bytes]:
    """What a consumer gets that wants one tag."""
    bodies: set[bytes] = set()
    offset, end = store.bounds("orders", 0)
    while offset < end:
        read = store.read("orders", 0, offset, 32, 1 << 20, [tag_code("a")])
        bodies |= {view.body for view in decode_messages(read.body)}
        offset = read.next_offset
    return bodies


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("unit", [0, 3, 9])
def test_a_damaged_entry_costs_its_own_message(tmp_path: Path, unit: int, clean: bool) -> None:
    for byte in range(12):
        for bit in (0x80, 0x01):
            directory = tmp_path / f"{byte}-{bit}"
            store = open_store(directory)
            for number in range(10):
                store.append(incoming(f"{number}", tags="a"))
            store.commit()
            store.close()
            if not clean:
                (directory / "abort").touch()
            path = directory / "consumequeue" / "orders" / "0" / f"{unit // 8 * 160:020d}"
            content = bytearray(path.read_bytes())
            content[unit % 8 * 20 + byte] ^= bit
            path.write_bytes(content)
            again = open_store(directory)
            whole = {number: b"%d" % number for number in range(10)}
            found = read_through(again)
            assert whole.items() - {(unit, whole[unit])} <= found.items() <= whole.items(), (byte, bit)
            assert tagged(again) | {whole[unit]} == set(found.values()) | {whole[unit]}
            assert again.append(incoming("next")).queue_offset == 10
            again.abandon()
