"""What the next process must bring to the disk, and what must be gone from it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from evenq.broker.scheduling.parked import ParkedMessages
from evenq.broker.scheduling.timers import Timers
from evenq.broker.store.store import Store
from tests.broker.store.messages import bodies, incoming, open_store, read_all
from tests.broker.stores import Hand, message
from tests.broker.torture.recording import (
    Journal,
    RecordingFiles,
    Renaming,
    Sync,
    Truncation,
    Unlucky,
    Write,
    lay_out,
)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "data").mkdir()
    return Journal(tmp_path / "data")


def started(journal: Journal) -> Store:
    """A process with no memory of the ones before."""
    return open_store(journal.root, files=RecordingFiles(journal))


def after_power_failure(journal: Journal, tmp_path: Path) -> Store:
    """Nothing is left that was not synced."""
    state = journal.power_failed(len(journal.entries), Unlucky())
    return open_store(lay_out(state, tmp_path / "after"))


def send(store: Store, *sent: str) -> None:
    for body in sent:
        store.append(incoming(body))
    store.commit()


def test_what_was_not_synced_is_gone_after_a_power_failure(journal: Journal, tmp_path: Path) -> None:
    store = started(journal)
    send(store, "synced")
    store.sync_log()
    send(store, "not synced")
    store.abandon()
    after = after_power_failure(journal, tmp_path)
    assert bodies(after) == [b"synced"]
    after.close()


def test_names_that_a_killed_process_gave_are_synced_too(journal: Journal, tmp_path: Path) -> None:
    killed = started(journal)
    send(killed, "one")
    killed.abandon()
    store = started(journal)
    send(store, "two")
    store.sync_log()
    store.abandon()
    after = after_power_failure(journal, tmp_path)
    assert bodies(after) == [b"one", b"two"]
    after.close()


def test_files_that_a_killed_process_filled_are_synced_too(journal: Journal, tmp_path: Path) -> None:
    killed = started(journal)
    sent = [f"{number}".ljust(500) for number in range(20)]
    send(killed, *sent)
    assert len(killed.log.file_starts) > 2
    killed.abandon()
    store = started(journal)
    store.checkpoint()()
    store.abandon()
    after = after_power_failure(journal, tmp_path)
    assert [message.body.decode() for message in read_all(after)] == sent
    after.close()


def test_what_a_failed_write_left_is_removed_from_the_disk(journal: Journal) -> None:
    store = started(journal)
    send(store, "taken")
    assert isinstance(store.files, RecordingFiles)
    store.files.fail(at=1, operation="pwrite", error=errno.ENOSPC, short=200)
    with pytest.raises(OSError, match="No space left"):
        send(store, "refused", "refused as well")
    kinds = [type(entry) for entry in journal.entries]
    assert kinds[::-1].index(Sync) < kinds[::-1].index(Truncation)
    store.close()


def test_a_new_topic_keeps_messages_at_places_that_the_power_failure_freed(journal: Journal, tmp_path: Path) -> None:
    store = started(journal)
    send(store, "old", "old too")
    # the note is on the disk, the messages are not
    store.delete_topic("orders")
    store.abandon()
    after = after_power_failure(journal, tmp_path)
    assert after.log.end == 0
    send(after, "new")
    after.abandon()
    again = open_store(tmp_path / "after")
    assert bodies(again) == [b"new"]
    again.close()


def test_what_a_start_cuts_off_the_log_does_not_come_back(tmp_path: Path) -> None:
    killed = open_store(tmp_path / "data")
    send(killed, "whole")
    end = killed.log.end
    send(killed, "torn")
    killed.abandon()
    (path,) = (tmp_path / "data" / "commitlog").iterdir()
    path.write_bytes(path.read_bytes().replace(b"torn", b"t\0\0\0"))
    journal = Journal(tmp_path / "data")
    started(journal).abandon()
    state = journal.power_failed(len(journal.entries), Unlucky())
    left = (lay_out(state, tmp_path / "after") / "commitlog" / path.name).read_bytes()
    assert b"whole" in left[:end]
    assert not any(left[end:])


def test_the_log_of_timers_is_on_the_disk_before_it_is_noted_how_far_it_is(journal: Journal) -> None:
    store = started(journal)
    hand = Hand(1_700_000_000.0)
    timers = Timers(store, journal.root, hand, lambda: None)
    ParkedMessages(store, hand).store_or_park(message(b"x", {"TIMER_DELAY_SEC": "5"}), {"TIMER_DELAY_SEC": "5"})
    store.commit()
    timers.deliver()
    store.checkpoint()()
    units = journal.number(journal.root / "timerlog" / f"{0:020d}")
    noted = journal.entries.index(
        next(entry for entry in journal.entries if isinstance(entry, Renaming) and entry.name == "timercheck")
    )
    written = max(at for at, entry in enumerate(journal.entries) if isinstance(entry, Write) and entry.file == units)
    assert any(isinstance(entry, Sync) and entry.number == units for entry in journal.entries[written:noted])
    store.abandon()
    timers.close()
