"""Keys that another process finds, and what happens without it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evenq.broker.store import keyfinder
from evenq.broker.store.keyfinder import KeyFinder, Place, keys_at
from evenq.broker.store.keys import Keys, key_hash
from tests.broker.store.messages import incoming, open_store


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Five records, some way into the second file of a log."""
    store = open_store(tmp_path)
    while store.log.end < store.log.file_size + 500:
        store.append(incoming("before"))
    first, records = store.log.end, [store.append(incoming(f"{n}")).log_offset for n in range(5)]
    store.settle()
    path, begin = store.log.place(first)
    assert (path.name, begin) == (f"{store.log.file_size:020}", first - store.log.file_size)
    store.close()
    return Place(str(path), begin, store.log.end - first, first, np.array(records) - first)


@pytest.fixture
def finder() -> Iterator[KeyFinder]:
    made = KeyFinder()
    yield made
    made.close()


def same(one: Keys, other: Keys) -> bool:
    columns = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("hashes", "offsets", "times"))
    return columns and (one.end, one.blank) == (other.end, other.blank)


def test_the_process_finds_what_would_be_found_here(finder: KeyFinder, place: Place) -> None:
    found = finder.find(place)
    assert finder.is_running
    assert found.hashes.tolist() == [key_hash("orders", "k")] * 5
    assert found.offsets[0] == place.base
    for each in (place, place._replace(starts=None), place._replace(size=place.size - 1, starts=None)):
        assert same(finder.find(each), keys_at(each))


def test_a_file_that_is_gone_is_an_error_of_this_piece_alone(finder: KeyFinder, place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        finder.find(place._replace(path=f"{place.path}0"))
    assert finder.is_running
    assert len(finder.find(place)) == 5


def test_without_work_it_ends_and_begins_again(
    finder: KeyFinder, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder.find(place)
    finder.rest()
    assert finder.is_running
    monkeypatch.setattr(keyfinder, "_IDLE", -1.0)
    finder.rest()
    assert not finder.is_running
    assert len(finder.find(place)) == 5


@pytest.mark.parametrize("command", [("",), ("/nowhere/python",), (sys.executable, "-c", "raise SystemExit(1)")])
def test_where_there_can_be_no_process_the_work_is_done_here(place: Place, command: tuple[str, ...]) -> None:
    finder = KeyFinder(command)
    for _ in range(2):
        assert same(finder.find(place), keys_at(place))
        assert not finder.is_running


def test_a_process_that_is_killed_is_missed_by_nobody(
    finder: KeyFinder, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    finder.find(place)
    assert finder._process is not None
    os.kill(finder._process.pid, signal.SIGKILL)
    finder._process.wait(10)
    with caplog.at_level(logging.WARNING):
        assert same(finder.find(place), keys_at(place))
    assert "the index is made without a process of its own" in caplog.text
    assert not finder.is_running
