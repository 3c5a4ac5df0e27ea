"""What is left of a store that was killed: everything that was handed to the system, and nothing that was not whole."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.broker.store.checkpoint import Checkpoint
from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.consumequeue import ConsumeQueue
from evenq.broker.store.recovery import recover
from evenq.broker.store.store import Store
from tests.broker.store.messages import LOG_FILE, bodies, incoming, open_store
from tests.harness.scale import examples

QUEUES = 3


def killed(store: Store, directory: Path, where: Path) -> Path:
    """A copy of what a killed broker would leave behind."""
    shutil.copytree(directory, where)
    return where


def fill(store: Store, count: int, *, start: int = 0) -> list[list[bytes]]:
    """Messages over some queues; the bodies by queue."""
    expected: list[list[bytes]] = [[] for _ in range(QUEUES)]
    for number in range(start, start + count):
        body = b"%d " % number * (number % 40 + 1)
        store.append(incoming(body, queue_id=number % QUEUES))
        store.settle()
        expected[number % QUEUES].append(body)
    return expected


def contents(store: Store) -> list[list[bytes]]:
    return [bodies(store, queue_id=queue_id) for queue_id in range(QUEUES)]


def test_what_was_settled_survives_a_kill(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 100)
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    assert (copy / "abort").exists()
    again = open_store(copy)
    assert contents(again) == expected
    assert again.log.end == store.log.end
    store.close()
    again.close()
    assert not (copy / "abort").exists()


def test_what_was_not_settled_is_gone_without_a_trace(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 10)
    store.append(incoming("never handed over"))
    again = open_store(killed(store, tmp_path / "a", tmp_path / "b"))
    assert contents(again) == expected
    assert again.append(incoming("next")).queue_offset == len(expected[0])
    store.close()
    again.close()


def test_a_checkpoint_spares_reading_what_is_before_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 60)
    store.checkpoint()()
    mark = store.log.end
    for queue, more in zip(expected, fill(store, 9, start=60), strict=True):
        queue += more
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    # what lies before the mark is not looked at: damage there is not even noticed
    first = copy / "commitlog" / f"{0:020d}"
    first.write_bytes(b"\xff" * 4 + first.read_bytes()[4:])
    log = CommitLog(copy / "commitlog", LOG_FILE)
    queues = {
        (path.parent.name, int(path.name)): ConsumeQueue(path, path.parent.name, int(path.name), 8)
        for path in (copy / "consumequeue").glob("*/*")
    }
    found = recover(
        log,
        queues.values(),
        lambda topic, number: queues[topic, number],
        Checkpoint.decode((copy / "checkpoint").read_bytes()),
        clean=False,
    )
    assert found.scanned == store.log.end - mark
    assert [queues["orders", number].max for number in range(QUEUES)] == [len(queue) for queue in expected]
    store.close()


def test_queues_that_were_removed_are_made_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    expected = fill(store, 50)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    again = open_store(tmp_path)
    assert contents(again) == expected
    again.close()


def test_a_clean_end_needs_no_reading_even_without_a_mark(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    expected = fill(store, 50)
    store.close()
    (tmp_path / "checkpoint").unlink()
    again = open_store(tmp_path)
    assert contents(again) == expected
    again.close()


def test_a_mark_beyond_the_log_is_not_believed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    expected = fill(store, 50)
    store.close()
    (tmp_path / "checkpoint").write_bytes(Checkpoint(mark=10**9).encode())
    (tmp_path / "abort").touch()
    again = open_store(tmp_path)
    assert contents(again) == expected
    again.close()


@settings(max_examples=examples(60))
@given(cut=st.integers(0, 3 * LOG_FILE), synced=st.integers(0, 30), count=st.integers(1, 45))
def test_a_log_cut_off_at_any_byte_keeps_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, synced: int, count: int
) -> None:
    root = tmp_path_factory.mktemp("torn")
    store = open_store(root / "a")
    expected = fill(store, synced)
    store.checkpoint()()
    mark = store.log.end
    for queue, more in zip(expected, fill(store, count, start=synced), strict=True):
        queue += more
    copy = killed(store, root / "a", root / "b")
    # the kill came in the middle of a write behind the mark: what follows is zeros
    position = mark + cut % max(1, store.log.end - mark)
    for path in sorted((copy / "commitlog").iterdir()):
        keep = min(max(position - int(path.name), 0), LOG_FILE)
        path.write_bytes(path.read_bytes()[:keep].ljust(LOG_FILE, b"\0"))
    again = open_store(copy)
    assert mark <= again.log.end <= position
    for found, wanted in zip(contents(again), expected, strict=True):
        assert found == wanted[: len(found)]
    # the log takes up where it was cut, and all of it is there after one more kill
    after = contents(again)
    for queue, more in zip(after, fill(again, 10, start=300), strict=True):
        queue += more
    third = open_store(killed(again, copy, root / "c"))
    assert contents(third) == after
    for opened in (store, again, third):
        opened.close()
