"""Damage in the log takes what it hit and nothing else, and is kept for whoever wants to look at it."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.broker.store.commitlog import BLANK_MAGIC
from evenq.broker.store.scan import read_entry
from evenq.broker.store.store import Store
from evenq.protocol.batch import BatchEntry
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import encode_record
from evenq.testing import Clock
from tests.broker.store.messages import HOST, LOG_FILE, batch, incoming, open_store, read_through
from tests.harness.scale import examples

QUEUES = 2
COUNT = 60


class Damaged:
    """A store that was killed, whose files can be altered before the next start."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "killed"
        store = open_store(root / "running")
        self.sent: dict[tuple[int, int], bytes] = {}
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        for number in range(COUNT):
            body = b"%d " % number * (number % 30 + 1)
            queue_id = number % QUEUES
            offset, place = store.append(incoming(body, queue_id=queue_id))
            self.sent[queue_id, offset] = body
            self.places[queue_id, offset] = place, store.log.next
        store.commit()
        shutil.copytree(root / "running", self.directory)
        store.close()

    def write(self, place: int, data: bytes) -> None:
        poke(self.directory, place, data)

    def flip(self, place: int, bit: int) -> None:
        path = self.directory / "commitlog" / f"{place // LOG_FILE * LOG_FILE:020d}"
        self.write(place, bytes([path.read_bytes()[place % LOG_FILE] ^ 1 << bit]))

    def start(self) -> Store:
        return open_store(self.directory)

    def hit(self, start: int, end: int) -> set[tuple[int, int]]:
        return {key for key, (begin, stop) in self.places.items() if begin < end and start < stop}


def found(store: Store) -> dict[tuple[int, int], bytes]:
    return {(queue, at): body for queue in range(QUEUES) for at, body in read_through(store, queue_id=queue).items()}


def poke(directory: Path, place: int, data: bytes) -> None:
    with (directory / "commitlog" / f"{place // LOG_FILE * LOG_FILE:020d}").open("r+b") as file:
        file.seek(place % LOG_FILE)
        file.write(data)


def copies(directory: Path) -> Iterator[Path]:
    return (directory / "damaged").iterdir()


@settings(max_examples=examples(150))
@given(st.data())
def test_a_flipped_bit_takes_one_message_at_most(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    damaged = Damaged(tmp_path_factory.mktemp("damage"))
    (key, (start, end)) = data.draw(st.sampled_from(sorted(damaged.places.items())[:-2]))
    # with another number of its queue it would take the place of another one: that has no checksum
    at = data.draw(st.integers(start, end - 1).filter(lambda at: not 12 <= at - start < 16))
    damaged.flip(at, data.draw(st.integers(0, 7)))
    store = damaged.start()
    after = found(store)
    for other, body in damaged.sent.items():
        # markers belong to the record before them
        if other != key:
            assert after.get(other) == body, other
    # another kill, and a clean end: it is the same
    for _ in range(2):
        store.abandon()
        store = damaged.start()
        assert found(store) == after
    store.close()


@settings(max_examples=examples(60))
@given(start=st.integers(0, 2 * LOG_FILE), size=st.sampled_from([1, 16, 512, 1024]), zeros=st.booleans())
def test_a_hole_takes_only_what_it_hit(
    tmp_path_factory: pytest.TempPathFactory, start: int, size: int, zeros: bool
) -> None:
    damaged = Damaged(tmp_path_factory.mktemp("damage"))
    end = min(start + size, (start // LOG_FILE + 1) * LOG_FILE)
    damaged.write(start, (b"\0" if zeros else b"\xaa") * (end - start))
    store = damaged.start()
    after = found(store)
    for key in damaged.sent.keys() - damaged.hit(start, end):
        assert after.get(key) == damaged.sent[key], key
    for queue_id in range(QUEUES):
        last = max(offset for queue, offset in after if queue == queue_id)
        assert store.append(incoming("x", queue_id=queue_id)).queue_offset == last + 1
    store.close()


WORDS = b"the quick brown fox jumps over lazy dogs and then writes another line of its log about that, at 12:30\n"


def foreign(rng: random.Random, kind: str, size: int) -> bytes:
    """A page that belongs elsewhere."""
    if kind == "text":
        at = rng.randrange(len(WORDS))
        return (WORDS * (size // len(WORDS) + 2))[at : at + size]
    if kind == "random":
        return rng.randbytes(size)
    # numbers below 65536, as in tables, with many zeros between them
    return b"".join((rng.randrange(1 << 16) if rng.random() < 0.3 else 0).to_bytes(4) for _ in range(size // 4))


@pytest.mark.parametrize("kind", ["text", "random", "zero-ish"])
def test_a_page_of_foreign_bytes_takes_only_what_it_hit(tmp_path: Path, rng: random.Random, kind: str) -> None:
    file_size = 1 << 18
    clock = Clock()
    store = Store(tmp_path / "a", HOST, clock=clock.now, log_file_size=file_size, queue_file_units=512)
    sent, places = {}, {}
    for number in range(300):
        body = rng.randbytes(rng.choice([0, 20, 200, 600, 3000]))
        offset, place = store.append(incoming(body, queue_id=number % QUEUES))
        sent[number % QUEUES, offset], places[number % QUEUES, offset] = body, (place, store.log.next)
    store.commit()
    end = store.log.end
    for attempt in range(examples(30)):
        copy = tmp_path / f"b{attempt}"
        shutil.copytree(tmp_path / "a", copy)
        size = rng.choice([512, 4096])
        # the last records stay: a damage behind which nothing is whole is the torn end of the log
        start = rng.randrange(end - 16_384) // 512 * 512
        path = copy / "commitlog" / f"{start // file_size * file_size:020d}"
        with path.open("r+b") as file:
            file.seek(start % file_size)
            file.write(foreign(rng, kind, min(size, file_size - start % file_size)))
        again = Store(copy, HOST, clock=clock.now, log_file_size=file_size, queue_file_units=512)
        after = found(again)
        again.abandon()
        for key, (begin, stop) in places.items():
            if not (begin < start + size and start < stop):
                assert after.get(key) == sent[key], (attempt, start, size, key)
        shutil.rmtree(copy)
    store.close()


def test_a_marker_in_the_middle_of_a_file_is_not_believed(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    start, _ = damaged.places[0, 3]
    damaged.write(start, (200).to_bytes(4) + BLANK_MAGIC.to_bytes(4))
    store = damaged.start()
    assert found(store) == {key: body for key, body in damaged.sent.items() if key != (0, 3)}
    store.close()


def test_damaged_bytes_are_copied_and_passed_over(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    start, end = damaged.places[0, 5]
    damaged.flip(start + 95, 3)
    path = damaged.directory / "commitlog" / f"{0:020d}"
    bytes_there = path.read_bytes()[start:end]
    store = damaged.start()
    assert found(store) == {key: body for key, body in damaged.sent.items() if key != (0, 5)}
    (copy,) = copies(damaged.directory)
    assert copy.name == f"{start}-{end - start}"
    assert copy.read_bytes() == bytes_there
    assert copy.stat().st_mode & 0o777 == 0o600
    assert list(store.recovered.lines()) == [
        f"the log from {start} to {end} is skipped: it is damaged; its bytes are in {copy}",
        "queue 0 of orders: the message at offset 5 is not in the log",
    ]
    # a consumer is told to go on behind it
    assert store.read("orders", 0, 5, 32, 1 << 20).next_offset == 6
    data, base = store.log.file(start)
    assert read_entry(data, start - base, start) is not None
    store.close()
    again = damaged.start()
    assert not list(again.recovered.lines())
    again.close()


def test_a_damaged_marker_at_the_end_of_a_file_costs_nothing(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    path = damaged.directory / "commitlog" / f"{0:020d}"
    place = path.read_bytes().index(BLANK_MAGIC.to_bytes(4)) - 4
    damaged.write(place, b"\xff" * 8)
    store = damaged.start()
    assert found(store) == damaged.sent
    assert path.read_bytes()[place : place + 8] == (LOG_FILE - place).to_bytes(4) + BLANK_MAGIC.to_bytes(4)
    store.close()


def test_a_whole_file_of_garbage_takes_only_its_own(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    damaged.write(LOG_FILE, b"\x5a" * LOG_FILE)
    store = damaged.start()
    lost = damaged.hit(LOG_FILE, 2 * LOG_FILE)
    assert found(store) == {key: body for key, body in damaged.sent.items() if key not in lost}
    assert [copy.stat().st_size for copy in copies(damaged.directory)] == [LOG_FILE]
    store.checkpoint()()
    store.close()


def test_a_record_within_a_body_is_never_taken(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("first"))
    outer = store.log.next
    place = outer + 200
    forged = encode_record(
        topic="orders",
        body=b"forged",
        queue_id=0,
        queue_offset=1,
        commit_log_offset=place,
        born_timestamp=0,
        born_host=HOST,
        store_timestamp=1_700_000_000_000,
        store_host=HOST,
    )
    head = place - outer - 96
    store.append(incoming(b"x" * head + forged + b"y" * 50))
    last = store.append(incoming("last"))
    store.commit()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store.close()
    path = tmp_path / "b" / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    at = content.index(forged)
    # it is where it says to be, and the record around it is damaged, and so is what follows
    content[at + 28 : at + 36] = at.to_bytes(8)
    content[last.log_offset + 4] ^= 1
    path.write_bytes(content)
    again = open_store(tmp_path / "b")
    assert read_through(again) == {0: b"first"}
    again.close()


@pytest.mark.parametrize("value", ["\0" * 600, "a\0", "\0"])
@pytest.mark.parametrize("together", [False, True])
def test_zeros_in_properties_cost_no_message(tmp_path: Path, value: str, together: bool) -> None:
    store = open_store(tmp_path / "a")
    properties = encode_properties({"KEYS": "k", "odd": value})
    # the last property may lack its end
    for text in (properties, properties[:-1]):
        if together:
            store.append_batch(batch([BatchEntry(b"plain"), BatchEntry(b"odd", text)]))
        else:
            store.append(incoming("plain"))
            store.append(incoming("odd")._replace(properties=text))
    for number in range(50):
        store.append(incoming(b"%d" % number, topic="bills"))
    store.append(incoming("last")._replace(properties=properties))
    store.commit()
    before = read_through(store)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store.close()
    again = open_store(tmp_path / "b")
    assert read_through(again) == before == {0: b"plain", 1: b"odd", 2: b"plain", 3: b"odd", 4: b"last"}
    assert len(read_through(again, "bills")) == 50
    message = again.message_at(again.queue("orders", 0).unit(1)[0])
    assert message is not None
    assert message.properties["odd"] == value
    assert not list(again.recovered.lines())
    again.close()


@pytest.mark.parametrize("last", [False, True])
def test_zeros_without_a_checksum_are_believed_if_a_message_follows(tmp_path: Path, last: bool) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("first"))
    old = store.append(incoming("old")._replace(properties="odd\x01XXXX\x02"))
    if not last:
        store.append(incoming("last"))
    store.commit()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store.close()
    path = tmp_path / "b" / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"XXXX\x02", bytes(5)))
    again = open_store(tmp_path / "b")
    assert read_through(again) == ({0: b"first"} if last else {0: b"first", 1: b"old", 2: b"last"})
    assert (again.record_at(old.log_offset) is None) == last
    assert (again.recovered.cut_bytes > 0) == last
    again.close()


def test_a_torn_end_is_copied_and_cut(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    start, end = damaged.places[1, COUNT // QUEUES - 1]
    damaged.write(start + 50, bytes(end - start - 50))
    store = damaged.start()
    assert store.log.end == start
    assert 0 < store.recovered.cut_bytes <= 50
    (line,) = store.recovered.lines()
    assert "no whole message follows, the log is cut there" in line
    (copy,) = copies(damaged.directory)
    assert len(copy.read_bytes()) == store.recovered.cut_bytes
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_damage_long_before_the_checkpoint_costs_one_message(tmp_path: Path, clean: bool) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock.now)
    places = []
    for number in range(40):
        places.append(store.append(incoming(b"%03d" % number)).log_offset)
        clock.advance(120)
    store.commit()
    store.checkpoint()()
    if clean:
        store.close()
    else:
        store.abandon()
    shutil.rmtree(tmp_path / "consumequeue")
    poke(tmp_path, places[0] + 90, b"\xff\xff")
    store = open_store(tmp_path, clock=clock.now)
    assert sorted(read_through(store).values()) == [b"%03d" % number for number in range(1, 40)]
    store.close()


def test_a_time_that_is_wrong_does_not_end_the_log(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock.now)
    places = []
    for number in range(40):
        if number in (10, 20):
            # a day ahead for a while
            clock.advance(86_400 if number == 10 else -86_400)
        places.append(store.append(incoming(b"%03d" % number)).log_offset)
    store.commit()
    store.abandon()
    poke(tmp_path, places[20] + 90, b"\xff\xff")
    store = open_store(tmp_path, clock=clock.now)
    assert sorted(read_through(store).values()) == [b"%03d" % number for number in range(40) if number != 20]
    store.close()
