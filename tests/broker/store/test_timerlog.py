import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenq.broker.store.files import SyncFailed
from evenq.broker.store.timerlog import NO_UNIT, NORMAL, ROLL, TimerCheckpoint, TimerLog, TimerUnit
from evenq.errors import StateError
from tests.broker.store.failing import FailingFiles

# five units and the marker behind them
FILE = 5 * 52 + 16 + 30


def unit(number: int, previous: int = NO_UNIT) -> TimerUnit:
    return TimerUnit(previous, NORMAL | ROLL, 1_700_000_000_000, -1000, number, 120, -7)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TimerLog]:
    log = TimerLog(tmp_path, FILE)
    yield log
    log.close()


def fill(log: TimerLog, count: int) -> list[int]:
    return [log.append(unit(number)) for number in range(count)]


def test_a_unit_is_stored_as_java_stores_it(log: TimerLog, tmp_path: Path) -> None:
    log.append(unit(4096))
    content = (tmp_path / "0".zfill(20)).read_bytes()
    assert len(content) == FILE
    assert struct.unpack_from(">iqiqiqiiq", content) == (52, -1, 3, 1_700_000_000_000, -1000, 4096, 120, -7, 0)


def test_a_unit_knows_its_second(log: TimerLog) -> None:
    assert log.read(log.append(unit(0))).second == 1_699_999_999_000


def test_units_that_do_not_fit_go_to_the_next_file_behind_javas_marker(log: TimerLog, tmp_path: Path) -> None:
    positions = fill(log, 7)
    assert positions == [0, 52, 104, 156, 208, FILE, FILE + 52]
    marker = (tmp_path / "0".zfill(20)).read_bytes()[260:276]
    assert struct.unpack(">iqI", marker) == (46, 0, 0xCBD43194)
    assert [(position, found.log_offset) for position, found in log.units()] == list(
        zip(positions, range(7), strict=True)
    )


def test_units_end_where_one_is_not_whole(log: TimerLog, tmp_path: Path) -> None:
    fill(log, 4)
    with (tmp_path / "0".zfill(20)).open("r+b") as file:
        file.seek(2 * 52)
        file.write(bytes(20))
    assert [found.log_offset for _, found in log.units()] == [0, 1]


def test_what_is_cut_is_written_over(log: TimerLog) -> None:
    positions = fill(log, 7)
    log.cut(positions[3])
    assert log.append(unit(99)) == positions[3]
    assert [found.log_offset for _, found in log.units()] == [0, 1, 2, 99]


def test_the_log_is_there_after_it_was_opened_again(log: TimerLog, tmp_path: Path) -> None:
    positions = fill(log, 7)
    log.sync()
    again = TimerLog(tmp_path, FILE)
    assert [position for position, _ in again.units()] == positions
    again.cut(again.behind(positions[-1]))
    assert again.append(unit(7)) == positions[-1] + 52
    again.close()


def test_files_whose_messages_are_deleted_go_too(log: TimerLog, tmp_path: Path) -> None:
    fill(log, 12)
    log.trim(4)
    assert len(list(tmp_path.iterdir())) == 3
    log.trim(5)
    assert [int(path.name) for path in sorted(tmp_path.iterdir())] == [FILE, 2 * FILE]
    log.trim(10**6)
    assert [int(path.name) for path in sorted(tmp_path.iterdir())] == [2 * FILE]


def test_a_unit_of_which_only_the_first_sector_is_there_ends_the_log(log: TimerLog, tmp_path: Path) -> None:
    positions = fill(log, 3)
    path = tmp_path / "0".zfill(20)
    content = path.read_bytes()
    # up to where the unit says at which place of the commit log its message is
    behind = positions[1] + 36
    path.write_bytes(content[:behind] + bytes(len(content) - behind))
    assert [position for position, _ in log.units()] == positions[:1]


def test_what_was_cut_is_gone_from_the_disk(tmp_path: Path) -> None:
    files = FailingFiles()
    log = TimerLog(tmp_path, FILE, files)
    fill(log, 3)
    files.fail(at=1, operation="datasync")
    with pytest.raises(SyncFailed):
        log.cut(52)
    log.close()


class CountingFiles(FailingFiles):
    """Counts the files that are handed to the disk."""

    synced = 0

    def datasync(self, descriptor: int) -> None:
        self.synced += 1
        super().datasync(descriptor)


def test_a_sync_hands_over_every_file_that_was_written_since_the_last_one(tmp_path: Path) -> None:
    files = CountingFiles()
    log = TimerLog(tmp_path, FILE, files)
    for count, synced in ((13, 3), (1, 1), (5, 2), (0, 1)):
        fill(log, count)
        files.synced = 0
        log.sync()
        assert files.synced == synced
    log.close()


def test_a_checkpoint_comes_back() -> None:
    saved = TimerCheckpoint(1_700_000_000_000, 17, 3)
    assert TimerCheckpoint.decode(saved.encode()) == saved


def test_a_short_page_is_refused() -> None:
    with pytest.raises(StateError, match="has 40 bytes and must have 4096"):
        TimerCheckpoint.decode(bytes(40))


def test_javas_is_understood() -> None:
    page = struct.pack(">qqqqqqq", 1_700_000_000_000, 5200, 20, 17, 0, 1, 2).ljust(4096, b"\0")
    assert TimerCheckpoint.decode(page) == TimerCheckpoint(1_700_000_000_000, 17, 0)


def test_what_java_has_gone_on_from_does_not_count_any_more() -> None:
    page = bytearray(TimerCheckpoint(5000, 17, 3).encode())
    struct.pack_into(">q", page, 0, 6000)
    assert TimerCheckpoint.decode(bytes(page)) == TimerCheckpoint(6000, 17, 0)
