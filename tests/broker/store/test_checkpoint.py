from pathlib import Path

import pytest

from evenq.broker.store.checkpoint import AbortFile, Checkpoint
from evenq.errors import StateError


def test_times_stand_where_java_reads_them() -> None:
    page = Checkpoint(log_time=1, queue_time=2, index_time=3, mark=4).encode()
    assert len(page) == 4096
    assert page[:24].hex() == "000000000000000100000000000000020000000000000003"


def test_a_page_by_java_has_no_mark() -> None:
    page = bytes(7) + b"\x05" + bytes(4088)
    assert Checkpoint.decode(page) == Checkpoint(log_time=5, by_java=True)


@pytest.mark.parametrize("damage", range(64, 92))
def test_a_damaged_mark_counts_as_none(damage: int) -> None:
    page = bytearray(Checkpoint(mark=1_000_000).encode())
    page[damage] ^= 0x10
    assert Checkpoint.decode(bytes(page)).mark == 0


def test_a_page_that_java_wrote_since_says_so() -> None:
    page = bytearray(Checkpoint(5, 4, 3, mark=2).encode())
    assert not Checkpoint.decode(bytes(page)).by_java
    page[7] = 6
    assert Checkpoint.decode(bytes(page)) == Checkpoint(6, 4, 3, mark=2, by_java=True)


def test_a_mark_of_an_earlier_version_is_understood() -> None:
    page = bytearray(4096)
    page[64:88] = b"evenq-01" + (77).to_bytes(8, "big") + (~77).to_bytes(8, "big", signed=True)
    assert Checkpoint.decode(bytes(page)) == Checkpoint(mark=77)


def test_a_short_page_is_refused() -> None:
    with pytest.raises(StateError, match="has 10 bytes and must have 4096"):
        Checkpoint.decode(bytes(10))


@pytest.mark.parametrize(("log_time", "queue_time", "safe"), [(10_000, 9_000, 6_000), (5_000, 9_000, 2_000), (0, 9, 0)])
def test_the_safe_time_is_three_seconds_before_the_earlier_one(log_time: int, queue_time: int, safe: int) -> None:
    assert Checkpoint(log_time, queue_time).safe_time == safe


def test_the_abort_file_is_there_while_a_store_is_open(tmp_path: Path) -> None:
    abort = AbortFile(tmp_path / "new" / "abort")
    assert not abort.found
    abort.set()
    assert abort.found
    abort.clear()
    assert not abort.found
    abort.clear()
