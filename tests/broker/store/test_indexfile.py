"""One index file against lists of what was put into it."""

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenq.broker.store.indexfile import ENTRIES, SLOTS, IndexFile
from evenq.broker.store.keys import Keys

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


def check(file: IndexFile, entries: list[Entry]) -> None:
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

    check(file, entries)
    assert file.count == len(entries) + 1
    if entries:
        assert (file.last_offset, file.last_time) == entries[-1][1:]
    more = [(3, 10**6, START + 10**7)]
    if file.add(keys_of(more)):
        check(file, entries + more)
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
    check(file, entries[:13])
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
