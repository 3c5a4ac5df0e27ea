from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.consumequeue import UNIT, ConsumeQueue

FILE_UNITS = 4


def make(directory: Path) -> ConsumeQueue:
    return ConsumeQueue(directory, "orders", 0, FILE_UNITS)


def offsets(queue: ConsumeQueue, start: int = 0, count: int = 100) -> list[int]:
    return [log_offset for log_offset, _, _ in UNIT.iter_unpack(queue.units(start, count))]


def test_a_unit_is_offset_size_and_tag_hash_as_java_stores_it(tmp_path: Path) -> None:
    queue = make(tmp_path)
    queue.append(0x1122334455667788, 0x99, -2)
    queue.close()
    stored = (tmp_path / f"{0:020d}").read_bytes()
    assert stored[:20].hex() == "1122334455667788" + "00000099" + "fffffffffffffffe"
    assert len(stored) == FILE_UNITS * 20


def test_units_are_read_from_the_file_and_from_memory_as_one(tmp_path: Path) -> None:
    queue = make(tmp_path)
    for number in range(10):
        queue.append(number * 100, 100, 0)
        if number == 5:
            queue.write_out()
    assert offsets(queue) == [number * 100 for number in range(10)]
    assert offsets(queue, 4, 4) == [400, 500, 600, 700]
    assert offsets(queue, 7, 2) == [700, 800]
    assert offsets(queue, 1, 2) == [100, 200]


def test_the_end_is_found_again(tmp_path: Path) -> None:
    queue = make(tmp_path)
    for number in range(9):
        queue.append(number * 100, 100, 0)
    queue.close()
    assert (make(tmp_path).min, make(tmp_path).max) == (0, 9)


def test_the_end_is_found_where_a_file_is_exactly_full(tmp_path: Path) -> None:
    queue = make(tmp_path)
    for number in range(2 * FILE_UNITS):
        queue.append(number, 1, 0)
    queue.close()
    assert make(tmp_path).max == 2 * FILE_UNITS


@pytest.mark.parametrize("written", [0, 5, 9])
@pytest.mark.parametrize("kept", range(10))
def test_a_cut_forgets_messages_from_a_log_offset_on(tmp_path: Path, written: int, kept: int) -> None:
    queue = make(tmp_path)
    for number in range(9):
        if number == written:
            queue.write_out()
        queue.append(number * 100, 100, 0)
    if written == 9:
        queue.write_out()
    queue.cut(kept * 100)
    assert queue.max == min(kept, 9)
    queue.append(5000, 100, 7)
    queue.close()
    again = make(tmp_path)
    assert offsets(again) == [*(number * 100 for number in range(min(kept, 9))), 5000]


def test_a_queue_whose_beginning_is_gone_starts_where_it_is_told(tmp_path: Path) -> None:
    queue = make(tmp_path)
    queue.skip_to(10)
    queue.append(70_000, 100, 0)
    assert (queue.min, queue.max, queue.unit(10)) == (10, 11, (70_000, 100, 0))
    queue.close()
    again = make(tmp_path)
    again.trim(65_536)
    assert (again.min, again.max) == (10, 11)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{8 * 20:020d}"]


def test_trimming_follows_the_log(tmp_path: Path) -> None:
    queue = make(tmp_path)
    for number in range(6):
        queue.append(number * 100, 100, 0)
    queue.trim(250)
    assert queue.min == 3
    queue.trim(10_000)
    assert queue.min == queue.max == 6


def test_a_queue_knows_where_it_ends_in_the_log(tmp_path: Path) -> None:
    queue = make(tmp_path)
    assert queue.log_end == 0
    queue.append(300, 40, 0)
    assert queue.log_end == 340


def test_missing_messages_keep_the_offsets_of_others(tmp_path: Path) -> None:
    queue = make(tmp_path)
    for number in range(3):
        queue.append(number * 100, 100, 0)
    queue.skip_to(11)
    queue.append(5000, 100, 0)
    queue.close()
    again = make(tmp_path)
    assert (again.min, again.max, again.log_end) == (0, 12, 5100)
    assert [again.unit(offset)[0] for offset in (2, 3, 10, 11)] == [200, -1, -1, 5000]
    # in the file is the place of the message before, since Java's readers stop at one without any
    assert [UNIT.unpack(again.units(offset, 1))[1] for offset in (2, 5, 11)] == [100, 0x7FFFFFFF, 100]
    files = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert {UNIT.unpack_from(files, offset * UNIT.size)[:2] for offset in range(3, 11)} == {(200, 100)}
    assert (again.first_present(1, 12), again.first_present(3, 12), again.first_present(3, 11)) == (1, 11, 11)
    again.trim(300)
    assert (again.min, again.max) == (11, 12)


@given(st.lists(st.none() | st.integers(1, 9), max_size=40), st.integers(0, 400))
def test_a_place_is_found_whatever_is_missing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | None], wanted: int
) -> None:
    queue, places = make(tmp_path_factory.mktemp("queue")), dict[int, int]()
    for offset, step in enumerate(steps):
        if step is None:
            queue.skip_to(offset + 1)
        else:
            places[offset] = max(places.values(), default=0) + step
            queue.append(places[offset], 1, 0)
    behind = [offset for offset, place in places.items() if place >= wanted]
    assert queue.first_at_or_after(wanted) == min(behind, default=queue.max)
    assert queue.max == len(steps)


@pytest.mark.parametrize("damage", [bytes(20), UNIT.pack(50, 100, 0), UNIT.pack(-5, 100, 0), UNIT.pack(600, -1, 0)])
def test_units_behind_one_that_cannot_be_right_mean_nothing(tmp_path: Path, damage: bytes) -> None:
    queue = make(tmp_path)
    for number in range(11):
        queue.append(number * 100, 100, 0)
    queue.close()
    # those of earlier files were on the disk before this file was begun
    path = tmp_path / f"{160:020d}"
    content = path.read_bytes()
    path.write_bytes(content[:20] + damage + content[40:])
    again = make(tmp_path)
    again.cut(10_000)
    assert offsets(again) == [number * 100 for number in range(9)]
    again.close()
    assert make(tmp_path).max == 9


def test_a_missing_file_ends_what_is_known(tmp_path: Path) -> None:
    queue = make(tmp_path)
    for number in range(11):
        queue.append(number * 100, 100, 0)
    queue.close()
    (tmp_path / f"{80:020d}").unlink()
    again = make(tmp_path)
    assert again.has_gaps
    again.cut(10_000)
    assert again.max == FILE_UNITS


def test_messages_in_missing_files_of_the_log_are_missing(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path, "orders", 0, FILE_UNITS, gaps=[(200, 400)])
    for number in range(6):
        queue.append(number * 100, 100, 0)
    assert [queue.unit(offset)[0] for offset in range(6)] == [0, 100, -1, -1, 400, 500]
    assert [size for _, size, _ in UNIT.iter_unpack(queue.units(1, 2))] == [100, 0x7FFFFFFF]


@given(st.lists(st.integers(1, 50), max_size=40), st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(1, 40))
def test_reads_do_not_depend_on_what_is_written_already(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], write_at: set[int], start: int, count: int
) -> None:
    queue = make(tmp_path_factory.mktemp("queue"))
    model, log_offset = [], 0
    for number, size in enumerate(sizes):
        queue.append(log_offset, size, number)
        model.append((log_offset, size, number))
        log_offset += size
        if number in write_at:
            queue.write_out()
    start = min(start, len(model))
    assert list(UNIT.iter_unpack(queue.units(start, count))) == model[start : start + count]
    queue.close()
