import struct

import pytest

from evenq.broker.store.timercheck import TimerCheckpoint
from evenq.errors import StateError


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
