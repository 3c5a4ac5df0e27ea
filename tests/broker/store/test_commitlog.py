from pathlib import Path

import pytest

from evenq.broker.store.commitlog import BLANK_MAGIC, CommitLog
from tests.broker.store.failing import FailingFiles

FILE_SIZE = 64


def make(directory: Path) -> CommitLog:
    log = CommitLog(directory, FILE_SIZE)
    log.cut(0)
    return log


def put(log: CommitLog, *records: bytes) -> None:
    """Write records one behind the other."""
    log.write(staged(log, *records))


def staged(log: CommitLog, *records: bytes | None) -> list[tuple[int, bytes | bytearray]]:
    """Records with their places, None for a blank marker."""
    pieces: list[tuple[int, bytes | bytearray]] = []
    for record in records:
        pieces.append((log.next, log.blank() if record is None else record))
        log.next += log.room if record is None else len(record)
    return pieces


def test_records_stand_one_behind_the_other(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"first", b"second")
    assert (log.start, log.end) == (0, 11)
    assert log.read(0, 11) == b"firstsecond"
    assert (tmp_path / f"{0:020d}").read_bytes() == b"firstsecond" + bytes(FILE_SIZE - 11)


def test_a_place_that_is_given_out_is_not_the_end(tmp_path: Path) -> None:
    log = make(tmp_path)
    staged(log, b"first")
    assert (log.end, log.next) == (0, 5)
    assert not list(tmp_path.iterdir())


def test_a_record_leaves_room_for_the_marker_behind_it(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"x" * 40)
    assert log.fits(FILE_SIZE - 40 - 8)
    assert not log.fits(FILE_SIZE - 40 - 7)
    assert log.largest == FILE_SIZE - 8


@pytest.mark.parametrize("size", [40, FILE_SIZE - 8])
def test_a_file_ends_with_a_marker_that_says_how_much_is_left(tmp_path: Path, size: int) -> None:
    log = make(tmp_path)
    log.write(staged(log, b"x" * size, None, b"next", b"more"))
    assert log.end == FILE_SIZE + 8
    first = (tmp_path / f"{0:020d}").read_bytes()
    assert first[size : size + 8] == (FILE_SIZE - size).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
    assert (tmp_path / f"{FILE_SIZE:020d}").read_bytes()[:8] == b"nextmore"
    assert log.file_starts == [0, FILE_SIZE]


def test_what_a_failed_write_leaves_is_removed(tmp_path: Path) -> None:
    files = FailingFiles()
    log = CommitLog(tmp_path, FILE_SIZE, files)
    log.cut(0)
    put(log, b"kept")
    files.fail(at=1, operation="pwrite", short=2)
    with pytest.raises(OSError, match="No space left"):
        put(log, b"lost")
    log.discard()
    assert (tmp_path / f"{0:020d}").read_bytes() == b"kept" + bytes(FILE_SIZE - 4)
    put(log, b"new!")
    assert log.read(0, 8) == b"keptnew!"


def test_files_that_a_failed_write_began_are_removed(tmp_path: Path) -> None:
    files = FailingFiles()
    log = CommitLog(tmp_path, FILE_SIZE, files)
    log.cut(0)
    put(log, b"x" * 40)
    files.fail(at=2, operation="pwrite")
    with pytest.raises(OSError, match="No space left"):
        log.write(staged(log, None, b"lost"))
    log.discard()
    assert (log.end, log.next, log.file_starts) == (40, 40, [0])
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]


def test_a_sync_says_how_far_it_reached(tmp_path: Path) -> None:
    log = make(tmp_path)
    put(log, b"x" * 50)
    pieces = staged(log, None, b"y")
    assert log.sync() == 50
    log.write(pieces)
    assert log.sync() == FILE_SIZE + 1


@pytest.mark.parametrize("position", [0, 3, 63, 64, 70])
def test_a_cut_leaves_zeros(tmp_path: Path, position: int) -> None:
    log = make(tmp_path)
    log.write(staged(log, b"x" * 56, None, b"y" * 20))
    log.cut(position)
    put(log, b"z")
    content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert content[position : position + 1] == b"z"
    assert not any(content[position + 1 :])
