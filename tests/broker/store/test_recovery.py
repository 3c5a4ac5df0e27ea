"""What is left of a store that was killed: everything that was handed to the system, and nothing that was not whole."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.consumequeue import ConsumeQueue
from evenq.broker.store.files import Files
from evenq.broker.store.recovery import recover
from evenq.broker.store.state_files import Checkpoint
from evenq.broker.store.store import Store
from evenq.protocol.flags import SysFlag
from tests.broker.store.messages import LOG_FILE, bodies, incoming, open_store, read_through
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
        store.commit()
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
        now=0,
        damaged_to=copy / "damaged",
    )
    assert (found.report.start, found.report.end) == (mark, store.log.end)
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


def reopened(store: Store, directory: Path, where: Path) -> Store:
    """A store that goes on with what a killed one has left."""
    again = open_store(killed(store, directory, where))
    store.close()
    return again


def zero(path: Path, start: int, end: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:start] + bytes(end - start) + content[end:])


@pytest.mark.parametrize("flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_a_half_message_in_an_ordinary_topic_takes_nothing_with_it(tmp_path: Path, flag: SysFlag) -> None:
    store = open_store(tmp_path / "a")
    for number in range(50):
        odd = incoming(b"%d" % number)
        store.append(odd._replace(sys_flag=int(flag)) if number in (20, 21, 49) else odd)
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {number: b"%d" % number for number in range(50) if number not in (20, 21, 49)}
    assert not list(again.recovered.lines())
    assert again.append(incoming("next")).queue_offset == 50
    again.commit()
    assert read_through(again)[50] == b"next"
    # a filter passes over them, too
    assert again.read("orders", 0, 15, 100, 1 << 20, {0}).count == 33
    again.close()


def test_half_messages_by_java_have_no_offset(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("half")._replace(sys_flag=int(SysFlag.PREPARED)))
    # the Java broker gives the next message the same offset
    store.queue("orders", 0).next = 0
    store.append(incoming("first"))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {0: b"first"}
    again.close()


def test_a_lost_page_of_a_queue_is_made_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 30)
    store.checkpoint()()
    page = (tmp_path / "a" / "checkpoint").read_bytes()
    for queue, more in zip(expected, fill(store, 60, start=30), strict=True):
        queue += more
    # the next checkpoint wrote more units, but the machine stopped before all were on the disk
    store.checkpoint()()
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    (copy / "checkpoint").write_bytes(page)
    zero(copy / "consumequeue" / "orders" / "0" / f"{160:020d}", 40, 100)
    again = open_store(copy)
    assert contents(again) == expected
    assert not list(again.recovered.lines())
    again.close()
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_file_of_a_queue_is_made_again(tmp_path: Path, clean: bool) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 90)
    store.checkpoint()()
    if clean:
        store.close()
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    (copy / "consumequeue" / "orders" / "1" / f"{160:020d}").unlink()
    again = open_store(copy)
    assert contents(again) == expected
    again.close()
    if not clean:
        store.close()


def test_a_lost_queue_is_made_again_with_the_next_message(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 60)
    store.checkpoint()()
    for queue, more in zip(expected, fill(store, 6, start=60), strict=True):
        queue += more
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    shutil.rmtree(copy / "consumequeue" / "orders" / "2")
    again = open_store(copy)
    assert contents(again) == expected
    again.close()
    store.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [0, 1, -1])
def test_a_missing_file_of_the_log_takes_only_its_own_messages(tmp_path: Path, clean: bool, lost: int) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 100)
    kept: list[dict[int, bytes]] = []
    files = sorted((tmp_path / "a" / "commitlog").iterdir())
    begin = int(files[lost].name)
    for queue_id, queue in enumerate(expected):
        places = [store.queue("orders", queue_id).unit(offset)[0] for offset in range(len(queue))]
        kept.append({at: body for at, body in enumerate(queue) if not begin <= places[at] < begin + LOG_FILE})
    if clean:
        store.close()
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    (copy / "commitlog" / files[lost].name).unlink()
    others = {path: path.read_bytes() for path in (copy / "commitlog").iterdir()}
    again = open_store(copy)
    assert [read_through(again, queue_id=queue_id) for queue_id in range(QUEUES)] == kept
    assert all(path.read_bytes()[:1000] == content[:1000] for path, content in others.items())
    if lost == 1:
        assert again.recovered.missing_files == [(LOG_FILE, 2 * LOG_FILE)]
        assert "files of the log are missing, from 4096 to 8192" in "".join(again.recovered.lines())
        assert [again.bounds("orders", queue_id)[1] for queue_id in range(QUEUES)] == [len(queue) for queue in expected]
        assert again.message_at(LOG_FILE + 10) is None
        # searches by time pass over what is missing
        assert again.offset_at("orders", 0, 0) == 0
        assert again.offset_at("orders", 0, 1 << 60) == len(expected[0])
    again.close()
    if not clean:
        store.close()


def kept_before(store: Store, position: int, queue_id: int, sent: list[bytes]) -> dict[int, bytes]:
    """The messages of a queue that are before a position of the log, by their offsets."""
    queue = store.queue("orders", queue_id)
    return {offset: body for offset, body in enumerate(sent) if queue.unit(offset)[0] < position}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("files", [1, 2, 100])
def test_what_was_given_is_not_given_again_without_the_last_files(tmp_path: Path, clean: bool, files: int) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 100)
    store.checkpoint()()
    end = store.log.end
    begin = store.log.file_starts[-files:][0]
    kept = [kept_before(store, begin, queue_id, bodies) for queue_id, bodies in enumerate(expected)]
    if clean:
        store.close()
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    for path in sorted((copy / "commitlog").iterdir())[-files:]:
        path.unlink()
    for start in range(2):
        again = open_store(copy)
        assert end <= again.log.end < end + LOG_FILE
        assert again.log.end % LOG_FILE == 0
        assert [again.bounds("orders", queue)[1] for queue in range(QUEUES)] == [len(queue) for queue in expected]
        assert [read_through(again, queue_id=queue) for queue in range(QUEUES)] == kept
        if start == 0 or begin > 0:
            assert f"files of the log are missing, from {begin} to {again.log.end}" in "".join(again.recovered.lines())
        again.close()
    again = open_store(copy)
    assert again.append(incoming("next")).queue_offset == len(expected[0])
    again.commit()
    assert read_through(again)[len(expected[0])] == b"next"
    again.close()
    if not clean:
        store.close()


def test_an_offset_that_is_taken_stays_with_the_first_record(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("first"))
    store.queue("orders", 0).next = 0
    second = store.append(incoming("second"))
    store.append(incoming("third"))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {0: b"first", 1: b"third"}
    assert [skipped.start for skipped in again.recovered.skipped] == [second.log_offset]
    assert "claims offset 0" in "".join(again.recovered.lines())
    again.close()


def test_an_impossible_offset_makes_no_queue_grow(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("first"))
    store.queue("orders", 0).next = 1 << 40
    store.append(incoming("damaged"))
    store.queue("orders", 0).next = 1
    store.append(incoming("second"))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {0: b"first", 1: b"second"}
    assert "claims offset 1099511627776 of queue 0 of orders" in "".join(again.recovered.lines())
    again.close()


@pytest.mark.parametrize("flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_an_impossible_offset_of_a_half_message_makes_no_queue_grow(tmp_path: Path, flag: SysFlag) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("first"))
    store.queue("orders", 0).next = 1 << 40
    store.append(incoming("half")._replace(sys_flag=int(flag)))
    store.queue("orders", 0).next = 1
    store.append(incoming("second"))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {0: b"first", 1: b"second"}
    assert "claims offset 1099511627776 of queue 0 of orders" in "".join(again.recovered.lines())
    assert again.append(incoming("next")).queue_offset == 2
    again.close()


@pytest.mark.parametrize("where", ["then", "at the end"])
def test_a_jump_that_the_next_record_confirms_is_believed(tmp_path: Path, where: str) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("first"))
    store.queue("orders", 0).next = 100
    for number in range(3):
        store.append(incoming(b"%d" % number))
    if where == "at the end":
        store.queue("orders", 0).next = 1000
        store.append(incoming("damaged"))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {0: b"first", 100: b"0", 101: b"1", 102: b"2"}
    assert len(again.recovered.skipped) == (where == "at the end")
    again.close()


def test_offsets_that_nothing_explains_are_reported_and_kept_free(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    store.append(incoming("a"))
    store.append(incoming("other" * 200, topic="bills"))
    store.queue("orders", 0).next = 6
    store.append(incoming("b"))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    assert read_through(again) == {0: b"a", 6: b"b"}
    assert list(again.recovered.lines()) == ["queue 0 of orders: the messages at 1 to 5 are not in the log"]
    assert again.recovered.records == 3
    again.close()
    # that is so once and for all
    closed = open_store(tmp_path / "b")
    assert read_through(closed) == {0: b"a", 6: b"b"}
    assert not list(closed.recovered.lines())
    closed.close()


def test_times_of_a_damaged_checkpoint_are_not_believed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    expected = fill(store, 100)
    copy = killed(store, tmp_path / "a", tmp_path / "b")
    page = (1 << 62).to_bytes(8, "big") * 2
    (copy / "checkpoint").write_bytes(page + bytes(4096 - len(page)))
    again = open_store(copy)
    assert contents(again) == expected
    assert again.recovered.start == 0
    again.close()
    store.close()


def test_a_checkpoint_by_java_spares_reading_older_files(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", now=1000.0)
    fill(store, 100)
    store.close()
    page = (1_010_000).to_bytes(8, "big") * 2
    (tmp_path / "a" / "checkpoint").write_bytes(page + bytes(4096 - len(page)))
    (tmp_path / "a" / "abort").touch()
    again = open_store(tmp_path / "a", now=2000.0)
    assert again.recovered.start == again.log.file_starts[-1] > 0
    again.close()


def test_a_checkpoint_brings_all_files_of_a_queue_to_the_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 100)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    files = SyncedFiles()
    again = open_store(tmp_path, files=files)
    again.checkpoint()()
    assert files.synced >= set((tmp_path / "consumequeue").glob("*/*/*"))
    again.close()


class SyncedFiles(Files):
    """Notes what was brought to the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: set[Path] = set()

    def sync(self, descriptor: int, path: Path) -> None:
        self.synced.add(path)
        super().sync(descriptor, path)


def test_a_start_says_what_was_wrong_but_not_without_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path / "a")
    for number in range(25):
        store.append(incoming("a", queue_id=number))
        store.append(incoming("other", topic="bills"))
        store.queue("orders", number).next = 2
        store.append(incoming("b", queue_id=number))
    store.commit()
    again = reopened(store, tmp_path / "a", tmp_path / "b")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 21
    assert warnings[0] == f"{tmp_path / 'b'}: queue 0 of orders: the message at offset 1 is not in the log"
    assert warnings[-1].endswith("5 more things like these are not listed")
    caplog.clear()
    again.close()
    open_store(tmp_path / "b").close()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
