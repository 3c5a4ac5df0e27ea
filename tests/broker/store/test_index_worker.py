"""Keys that another process finds, and what happens without it."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evenq.broker.store import index_worker
from evenq.broker.store.index_keys import Keys, Prepared, key_hash
from evenq.broker.store.index_worker import Found, KeyFinder, Place, Wanted, found_at
from tests.broker.store.messages import incoming, open_store

pytestmark = pytest.mark.live

SLOTS = 7


@pytest.fixture
def wanted(place: Place) -> Wanted:
    return Wanted(place, SLOTS, None)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Five records, some way into the second file of a log."""
    store = open_store(tmp_path)
    while store.log.end < store.log.file_size + 500:
        store.append(incoming("before"))
        store.commit()
    first, records = store.log.end, [store.append(incoming(f"{n}")).log_offset for n in range(5)]
    store.commit()
    path, begin = store.log.place(first)
    assert (path.name, begin) == (f"{store.log.file_size:020}", first - store.log.file_size)
    store.close()
    return Place(str(path), begin, store.log.end - first, first, np.array(records) - first)


@pytest.fixture
def finder() -> Iterator[KeyFinder]:
    made = KeyFinder()
    yield made
    made.close()


def entries(found: Found) -> list[tuple[int, ...]]:
    assert isinstance(found, Prepared)
    return [tuple(entry) for entry in found.entries.tolist()]


def same(one: Found, other: Found) -> bool:
    return pickle.dumps(one) == pickle.dumps(other)


def test_the_process_finds_what_would_be_found_here(finder: KeyFinder, wanted: Wanted) -> None:
    found = finder.find(wanted)
    assert finder.is_running
    assert [entry[0] for entry in entries(found)] == [key_hash("orders", "k")] * 5
    assert entries(found)[0][1] == wanted.place.base
    place = wanted.place
    for each in (place, place._replace(starts=None), place._replace(size=place.size - 1, starts=None)):
        assert same(finder.find(wanted._replace(place=each)), found_at(wanted._replace(place=each)))
    later = wanted._replace(base_time=1_600_000_000_000)
    assert {entry[2] for entry in entries(finder.find(later))} == {100_000_000}


def test_where_there_is_nothing_it_says_how_far_it_looked(finder: KeyFinder, wanted: Wanted) -> None:
    found = finder.find(wanted._replace(place=wanted.place._replace(size=20, starts=None)))
    assert isinstance(found, Keys)
    assert (len(found), found.end) == (0, wanted.place.base)


def test_a_file_that_is_gone_is_an_error_of_this_piece_alone(finder: KeyFinder, wanted: Wanted) -> None:
    with pytest.raises(FileNotFoundError):
        finder.find(wanted._replace(place=wanted.place._replace(path=f"{wanted.place.path}0")))
    assert finder.is_running
    assert len(entries(finder.find(wanted))) == 5


def test_without_work_it_ends_and_begins_again(
    finder: KeyFinder, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder.find(wanted)
    finder.rest()
    assert finder.is_running
    monkeypatch.setattr(index_worker, "_IDLE", -1.0)
    finder.rest()
    assert not finder.is_running
    assert len(entries(finder.find(wanted))) == 5


@pytest.mark.parametrize("command", [("",), ("/nowhere/python",), (sys.executable, "-c", "raise SystemExit(1)")])
def test_where_there_can_be_no_process_the_work_is_done_here(wanted: Wanted, command: tuple[str, ...]) -> None:
    finder = KeyFinder(command)
    for _ in range(2):
        assert same(finder.find(wanted), found_at(wanted))
        assert not finder.is_running


def test_a_process_that_is_killed_is_missed_by_nobody(
    finder: KeyFinder, wanted: Wanted, caplog: pytest.LogCaptureFixture
) -> None:
    finder.find(wanted)
    assert finder._process is not None
    os.kill(finder._process.pid, signal.SIGKILL)
    finder._process.wait(10)
    with caplog.at_level(logging.WARNING):
        assert same(finder.find(wanted), found_at(wanted))
    assert "the index is made without a process of its own" in caplog.text
    assert not finder.is_running


def test_the_process_runs_nothing_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finder: KeyFinder, wanted: Wanted
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "numpy.py").write_text("from pathlib import Path; Path('ran').touch(); raise SystemExit(1)")
    monkeypatch.chdir(planted)

    finder.find(wanted)

    assert finder.is_running
    assert not (planted / "ran").exists()
