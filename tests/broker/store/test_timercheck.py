import struct
from pathlib import Path

from evenq.broker.store.timercheck import TimerCheckpoint


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    saved = TimerCheckpoint(1_700_000_000_000, 17, 3)
    saved.save(tmp_path / "config" / "timercheck")
    assert TimerCheckpoint.load(tmp_path / "config" / "timercheck") == saved


def test_there_is_none_at_first(tmp_path: Path) -> None:
    assert TimerCheckpoint.load(tmp_path / "timercheck") == TimerCheckpoint(0, 0, 0)


def test_javas_is_understood() -> None:
    page = struct.pack(">qqqqqqq", 1_700_000_000_000, 5200, 20, 17, 0, 1, 2)
    assert TimerCheckpoint.decode(page) == TimerCheckpoint(1_700_000_000_000, 17, 0)


def test_what_java_has_gone_on_from_does_not_count_any_more() -> None:
    page = bytearray(TimerCheckpoint(5000, 17, 3).encode())
    struct.pack_into(">q", page, 0, 6000)
    assert TimerCheckpoint.decode(bytes(page)) == TimerCheckpoint(6000, 17, 0)
