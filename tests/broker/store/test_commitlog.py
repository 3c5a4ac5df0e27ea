from pathlib import Path

import pytest

from evenq.broker.store.commitlog import BLANK_MAGIC, CommitLog

FILE_SIZE = 64


def make(directory: Path) -> CommitLog:
    log = CommitLog(directory, FILE_SIZE)
    log.cut(0)
    return log


def put(log: CommitLog, record: bytes) -> None:
    log.append(record, [len(record)])


def test_records_stand_one_behind_the_other(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"first")
    put(log, b"second")
    assert (log.start, log.end) == (0, 11)
    assert log.read(0, 11) == b"firstsecond"


def test_nothing_is_in_the_file_before_it_is_written_out(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"first")
    assert not list(tmp_path.iterdir())
    log.write_out()
    assert (tmp_path / f"{0:020d}").read_bytes() == b"first" + bytes(FILE_SIZE - 5)


def test_a_record_leaves_room_for_the_marker_behind_it(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"x" * 40)
    assert log.fits(FILE_SIZE - 40 - 8)
    assert not log.fits(FILE_SIZE - 40 - 7)
    assert log.largest == FILE_SIZE - 8


def test_a_file_ends_with_a_marker_that_says_how_much_is_left(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"x" * 40)
    log.roll()
    assert log.end == FILE_SIZE
    put(log, b"next")
    log.write_out()
    first = (tmp_path / f"{0:020d}").read_bytes()
    assert first[40:48] == (FILE_SIZE - 40).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
    assert (tmp_path / f"{FILE_SIZE:020d}").read_bytes()[:4] == b"next"
    assert log.file_starts == [0, FILE_SIZE]


def test_what_the_file_does_not_take_can_be_taken_back(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"kept")
    log.write_out()
    put(log, b"lost")
    assert log.take_back() == 4
    put(log, b"new!")
    assert log.read(0, 8) == b"keptnew!"


def test_a_sync_says_how_far_it_reached(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"x" * 50)
    log.write_out()
    put(log, b"y")
    assert log.sync() == 50
    log.roll()
    assert log.sync() == FILE_SIZE


@pytest.mark.parametrize("position", [0, 3, 63, 64, 70])
def test_a_cut_leaves_zeros(tmp_path: Path, position: int) -> None:
    log = make(tmp_path)
    put(log, b"x" * 56)
    log.roll()
    put(log, b"y" * 20)
    log.write_out()
    log.cut(position)
    put(log, b"z")
    log.write_out()
    content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert content[position : position + 1] == b"z"
    assert not any(content[position + 1 :])
