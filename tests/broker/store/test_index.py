"""The index of a store: it keeps up with the log, and with every way in which a store can end."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenq.broker.store import index
from evenq.broker.store.index import ENTRIES, SLOTS, Index, IndexFile
from evenq.broker.store.index_keys import Keys
from evenq.broker.store.store import NewMessage, Store
from evenq.protocol.properties import encode_properties

FOREVER = 2**60


class Library:
    """A store with its index, which can be left in good order or not."""

    def __init__(self, directory: Path, *, entries: int = 1000) -> None:
        self.directory = directory
        self.now = 1_700_000_000.0
        self._entries = entries
        self.open()

    def open(self) -> None:
        self.store = Store(self.directory, "127.0.0.1:10911", clock=lambda: self.now, log_file_size=1 << 16)
        self.index = Index(
            self.directory / "index",
            self.store.log,
            clock=lambda: self.now,
            clean=self.store.was_closed,
            slots=64,
            entries=self._entries,
        )
        self.store.save_with_checkpoints(self.index.saver)

    def put(self, numbers: Iterable[int], *, size: int = 10, topic: str = "orders") -> None:
        for number in numbers:
            self.now += 0.1
            properties = encode_properties({"UNIQ_KEY": f"u{number}", "KEYS": f"k{number} all"})
            self.store.append(NewMessage(topic, 0, bytes(size), properties, None, 0, "127.0.0.1:1"))
        self.store.commit()

    def catch_up(self) -> None:
        while self.index.behind > 0:
            self.index.advance()

    def find(self, key: str, topic: str = "orders", begin: int = 0, end: int = FOREVER) -> list[str | None]:
        found = [self.store.message_at(offset) for offset in self.index.find(topic, key, begin, end)]
        return [message.unique_key for message in found if message and key in (message.unique_key, *message.keys)]

    def close(self) -> None:
        self.index.close()
        self.store.close()

    def kill(self) -> None:
        """End as SIGKILL does: go on with what the system has now, in a copy of it."""
        copy = self.directory.with_name(f"{self.directory.name}+")
        shutil.copytree(self.directory, copy)
        self.close()
        self.directory = copy
        self.open()

    def restart(self) -> None:
        self.close()
        self.open()


@pytest.fixture(params=["here", "apart"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As it is with little, and as with much: then another process finds the keys."""
    if request.param == "apart":
        monkeypatch.setattr(index, "_APART", 0)
    return str(request.param)


@pytest.fixture
def library(tmp_path: Path, where: str) -> Library:
    return Library(tmp_path / "store")


def check(library: Library, count: int) -> None:
    for number in range(count):
        assert library.find(f"u{number}") == library.find(f"k{number}") == [f"u{number}"]
    assert library.find("all") == [f"u{number}" for number in reversed(range(count))]
    assert library.find(f"u{count}") == []


@pytest.mark.live
def test_keys_are_found_after_catching_up_with_the_log(library: Library) -> None:
    library.put(range(100))
    assert library.find("u5") == []
    library.catch_up()
    check(library, 100)
    assert library.find("u5", topic="other") == []
    newest = library.store.message_at(library.index.last[0])
    assert newest is not None
    assert (newest.unique_key, library.index.last[1]) == ("u99", newest.store_timestamp)
    library.close()


@pytest.mark.live
def test_files_follow_each_other_when_they_are_full_and_the_log_when_it_rolls(tmp_path: Path, where: str) -> None:
    library = Library(tmp_path / "store", entries=101)
    library.put(range(400), size=1000)
    library.catch_up()

    names = sorted(path.name for path in (tmp_path / "store/index").iterdir())
    assert len(names) == 13
    assert {len(name) for name in names} == {17}
    assert len(library.store.log.file_starts) > 5
    check(library, 400)
    library.close()


@pytest.mark.live
def test_a_message_larger_than_a_piece_is_taken_whole(tmp_path: Path) -> None:
    store = Store(tmp_path, "127.0.0.1:10911", clock=lambda: 1.0)
    index = Index(tmp_path / "index", store.log, clock=lambda: 1.0)
    for number in range(3):
        properties = encode_properties({"KEYS": f"k{number}"})
        store.append(NewMessage("orders", 0, bytes(1 << 20), properties, None, 0, "127.0.0.1:1"))
    store.commit()
    while index.advance():
        pass
    assert [len(list(index.find("orders", f"k{number}", 0, FOREVER))) for number in range(4)] == [1, 1, 1, 0]
    index.close()
    store.close()


@pytest.mark.live
def test_a_start_goes_on_where_the_last_run_ended(library: Library) -> None:
    library.put(range(50))
    library.catch_up()
    library.restart()
    assert library.index.behind == 0
    library.put(range(50, 80))
    library.restart()
    assert library.index.behind > 0
    library.catch_up()
    check(library, 80)
    library.close()


@pytest.mark.live
@pytest.mark.parametrize("saved", [True, False])
def test_after_a_kill_everything_is_found_once(library: Library, saved: bool) -> None:
    library.put(range(50))
    library.catch_up()
    if saved:
        library.store.checkpoint()()
    library.put(range(50, 80))
    library.catch_up()
    library.kill()
    library.catch_up()
    check(library, 80)
    library.put(range(80, 90))
    library.catch_up()
    check(library, 90)
    library.close()


def test_a_kill_at_any_moment_between_two_checkpoints(tmp_path: Path) -> None:
    library = Library(tmp_path / "store", entries=61)
    for number in range(60):
        library.put([number])
        if number % 3:
            library.index.advance()
        if number % 7 == 0:
            library.store.checkpoint()()
        if number % 11 == 0:
            library.kill()
    library.catch_up()
    check(library, 60)
    library.close()


@pytest.mark.live
def test_an_index_that_is_gone_is_made_again(library: Library) -> None:
    library.put(range(30))
    library.catch_up()
    library.close()
    shutil.rmtree(library.directory / "index")
    library.open()
    library.catch_up()
    check(library, 30)
    library.close()


@pytest.mark.live
def test_an_index_that_knows_more_than_the_log_forgets_it(library: Library) -> None:
    library.put(range(30))
    library.catch_up()
    end = library.store.log.end
    library.put(range(30, 40))
    library.catch_up()
    library.close()
    path = next((library.directory / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.truncate(end)
        file.truncate(1 << 16)
    (library.directory / "abort").touch()
    (library.directory / "checkpoint").unlink()
    library.open()
    library.catch_up()
    check(library, 30)
    library.put(range(30, 33))
    library.catch_up()
    check(library, 33)
    library.close()


@pytest.mark.live
def test_files_of_another_shape_are_left_alone(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    library.put(range(3))
    other = library.directory / "index" / "20200101000000000"
    other.parent.mkdir()
    other.write_bytes(b"x" * 100)
    library.restart()
    library.catch_up()
    check(library, 3)
    assert "is left out" in caplog.text
    assert other.read_bytes() == b"x" * 100
    library.close()


START = 1_700_000_000_000
Entry = tuple[int, int, int]

# messages: each with its hashes, and the milliseconds since the one before it
messages = st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=3), st.integers(0, 5000)), max_size=30)


def entries_of(found: list[tuple[list[int], int]]) -> list[Entry]:
    """Hash, log offset and time of each key."""
    time = START
    entries = []
    for number, (hashes, pause) in enumerate(found):
        time += pause
        entries += [(each, 1000 + number * 100, time) for each in hashes]
    return entries


def keys_of(entries: list[Entry]) -> Keys:
    hashes, offsets, times = zip(*entries, strict=True) if entries else ((), (), ())
    return Keys(np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(times, np.int64), end=0)


def small(path: Path, **how: bool) -> IndexFile:
    return IndexFile(path / "20260101000000000", slots=7, entries=40, **how)


def check_file(file: IndexFile, entries: list[Entry]) -> None:
    for wanted in range(31):
        newest_first = [offset for hashed, offset, _ in reversed(entries) if hashed == wanted]
        assert list(file.find(wanted, 0, 2**60)) == newest_first


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(messages, st.integers(1, 9), st.sampled_from(["open", "closed", "killed"]))
def test_every_key_is_found_newest_first_however_the_file_was_left(
    tmp_path: Path, found: list[tuple[list[int], int]], batch: int, left: str
) -> None:
    entries = entries_of(found)[:39]
    file = small(tmp_path)
    for begin in range(0, len(entries), batch):
        part = entries[begin : begin + batch]
        assert file.add(keys_of(part)) == len(part)
    if left == "closed":
        file.close()
        file = small(tmp_path)
    elif left == "killed":
        file.save(file.header())
        file.abandon()
        file = small(tmp_path, stale=True)

    check_file(file, entries)
    assert file.count == len(entries) + 1
    if entries:
        assert (file.last_offset, file.last_time) == entries[-1][1:]
    more = [(3, 10**6, START + 10**7)]
    if file.add(keys_of(more)):
        check_file(file, entries + more)
    file.abandon()
    file.path.unlink()


def test_a_message_is_never_cut_in_two_by_the_end_of_a_file(tmp_path: Path) -> None:
    file = small(tmp_path)
    entries = [(1, 100 * (number // 4), START) for number in range(44)]

    assert file.add(keys_of(entries)) == 36
    assert file.room == 3
    assert file.add(keys_of(entries[36:])) == 0
    file.abandon()


def test_what_the_log_lost_is_forgotten(tmp_path: Path) -> None:
    file = small(tmp_path)
    entries = [(number % 5, 100 * number, START + 1000 * number) for number in range(20)]
    file.add(keys_of(entries))

    file.cut(1250)
    check_file(file, entries[:13])
    assert (file.last_offset, file.last_time) == (1200, START + 12_000)
    file.cut(0)
    assert file.is_empty
    file.abandon()


def test_times_narrow_the_search_to_the_second(tmp_path: Path) -> None:
    file = small(tmp_path)
    file.add(keys_of([(1, 100 * number, START + 700 * number) for number in range(10)]))

    found = list(file.find(1, START + 2100, START + 4200))

    assert set(range(300, 700, 100)) <= set(found) <= set(range(200, 800, 100))
    assert file.overlaps(START + 6300, START + 9000)
    assert not file.overlaps(START + 6301, START + 9000)
    assert not file.overlaps(0, START - 1)
    file.abandon()


def test_the_file_has_javas_size_and_takes_what_is_in_it_only(tmp_path: Path) -> None:
    file = IndexFile(tmp_path / "20260101000000000")
    file.add(keys_of([(number * 7919, number, START) for number in range(1000)]))
    file.close()

    stat = file.path.stat()
    assert stat.st_size == 40 + SLOTS * 4 + ENTRIES * 20
    assert stat.st_blocks * 512 < 8 * 1024 * 1024
    with file.path.open("rb") as stored:
        header = stored.read(40)
    assert np.frombuffer(header, ">i8", 4).tolist() == [START, START, 0, 999]
    assert np.frombuffer(header, ">i4", 2, 32).tolist() == [1000, 1001]
