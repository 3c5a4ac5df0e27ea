"""Turns: what they stage is stored as a whole, or nothing of it."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenq.broker.store.store import ReadOnly, Store
from evenq.protocol.batch import BatchEntry
from tests.broker.store.failing import FailingFiles
from tests.broker.store.messages import HOST, LOG_FILE, batch, bodies, incoming, open_store


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def store(tmp_path: Path, files: FailingFiles) -> Iterator[Store]:
    opened = Store(
        tmp_path / "data", HOST, clock=lambda: 1_700_000_000.0, log_file_size=LOG_FILE, queue_file_units=8, files=files
    )
    opened.append(incoming("kept"))
    opened.commit()
    yield opened
    files.fail(at=0)
    opened.close()


def after_a_kill(store: Store, tmp_path: Path) -> Store:
    """The store as the next process finds it."""
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "data", copy)
    return open_store(copy)


def test_nobody_sees_what_is_only_staged(store: Store) -> None:
    stored = store.append(incoming("staged"))
    assert (stored.queue_offset, stored.log_offset) == (1, store.log.end)
    assert store.bounds("orders", 0) == (0, 1)
    assert bodies(store) == [b"kept"]
    store.commit()
    assert bodies(store) == [b"kept", b"staged"]


def test_a_rollback_gives_places_back(store: Store) -> None:
    first = store.append(incoming("first"))
    savepoint = len(store.staged)
    lost = [store.append(incoming("lost", queue_id=number % 2)) for number in range(40)]
    store.append_batch(batch([BatchEntry(b"lost too")] * 3))
    store.rollback(savepoint)
    assert store.append(incoming("second")) == lost[0]._replace(queue_offset=first.queue_offset + 1)
    store.commit()
    assert bodies(store) == [b"kept", b"first", b"second"]
    assert bodies(store, queue_id=1) == []


def test_what_was_done_beside_is_undone_in_reverse(store: Store) -> None:
    undone: list[str] = []
    store.append(incoming("one"))
    store.on_discard(lambda: undone.append("one"))
    savepoint = len(store.staged)
    for name in ("two", "three"):
        store.append(incoming(name))
        store.on_discard(lambda name=name: undone.append(name))  # type: ignore[misc]
    store.rollback(savepoint)
    assert undone == ["three", "two"]
    store.commit()
    store.rollback(0)
    assert undone == ["three", "two"]


@pytest.mark.parametrize("short", [None, 1, 100, 250])
def test_a_full_disk_takes_back_what_it_refused(
    store: Store, files: FailingFiles, tmp_path: Path, short: int | None
) -> None:
    files.fail(at=1, operation="pwrite", short=short)
    store.append(incoming("lost"))
    store.append_batch(batch([BatchEntry(b"lost too")] * 20))
    store.append(incoming("lost", queue_id=1))
    undone: list[int] = []
    store.on_discard(lambda: undone.append(1))
    with pytest.raises(OSError, match="No space left"):
        store.commit()
    assert undone == [1]
    assert (store.bounds("orders", 0), store.bounds("orders", 1)) == ((0, 1), (0, 0))
    again = after_a_kill(store, tmp_path)
    assert bodies(again) == [b"kept"]
    again.close()
    assert store.append(incoming("after")).queue_offset == 1
    store.commit()
    assert bodies(store) == [b"kept", b"after"]


def test_a_refused_batch_leaves_no_entries(store: Store, files: FailingFiles) -> None:
    """Entries of many messages used to be written before their records."""
    files.fail(at=1, operation="pwrite", times=100)
    for _ in range(50):
        store.append_batch(batch([BatchEntry(b"lost")] * 30))
    with pytest.raises(OSError, match="No space left"):
        store.commit()
    files.fail(at=0)
    store.append(incoming("of another queue", topic="bills"))
    store.append(incoming("after"))
    store.commit()
    assert bodies(store) == [b"kept", b"after"]


def test_a_topic_may_be_deleted_while_its_messages_are_staged(store: Store, files: FailingFiles) -> None:
    for fails in (False, True):
        store.append(incoming("before"))
        store.append(incoming("gone", topic="bills"))
        store.delete_topic("bills")
        store.append(incoming("behind"))
        if fails:
            files.fail(at=1, operation="pwrite")
            with pytest.raises(OSError, match="No space left"):
                store.commit()
        else:
            assert list(store.commit()) == [("orders", 0)]
    assert bodies(store) == [b"kept", b"before", b"behind"]
    assert store.bounds("bills", 0) == (0, 0)


def test_nothing_is_taken_while_the_log_cannot_be_cut(
    store: Store, files: FailingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.fail(at=1, times=100)
    store.append(incoming("lost"))
    with pytest.raises(OSError, match="No space left"):
        store.commit()
    with pytest.raises(ReadOnly, match="the store is read-only: what a failed write left cannot be removed"):
        store.append(incoming("refused"))
    assert bodies(store) == [b"kept"]
    files.fail(at=0)
    store.checkpoint()()
    store.append(incoming("after"))
    store.commit()
    assert bodies(store) == [b"kept", b"after"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]


@pytest.mark.parametrize("operation", ["datasync", "sync_directory"])
def test_after_a_failed_sync_nothing_counts_as_synced(store: Store, files: FailingFiles, operation: str) -> None:
    store.append(incoming("perhaps on the disk"))
    store.commit()
    files.fail(at=1, operation=operation, error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        store.sync_log()
    # the system would say that all is well now
    with pytest.raises(ReadOnly, match="the disk did not take what was written"):
        store.sync_log()
    with pytest.raises(ReadOnly, match="check it and restart the broker"):
        store.append(incoming("refused"))
    assert len(bodies(store)) == 2
    with pytest.raises(ReadOnly):
        store.checkpoint()()


def test_entries_that_cannot_be_written_are_written_later(store: Store, files: FailingFiles, tmp_path: Path) -> None:
    files.fail(at=2, operation="pwrite", times=10_000)
    # more than what is kept in memory before it is written
    store.append_batch(batch([BatchEntry(b"")] * 30))
    store.commit()
    with pytest.raises(OSError, match="No space left"):
        store.checkpoint()
    files.fail(at=0)
    store.checkpoint()()
    again = after_a_kill(store, tmp_path)
    assert len(bodies(again)) == 31
    again.close()
