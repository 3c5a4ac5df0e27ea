import errno
import stat
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.files import DirectoryLock, Files, Segments, SyncFailed
from evenq.errors import StateError
from tests.broker.store.failing import FailingFiles


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    files = Files()
    files.close(files.open(tmp_path / "log", create=True))
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_a_write_goes_on_until_all_bytes_are_written(tmp_path: Path) -> None:
    class FewBytes(Files):
        def pwrite(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
            return super().pwrite(descriptor, bytes(data[:3]), at)

    files = FewBytes()
    descriptor = files.open(tmp_path / "log", create=True)
    files.write(descriptor, b"0123456789", 2)
    files.close(descriptor)
    assert files.read(tmp_path / "log") == b"\0\x000123456789"


def test_a_file_that_takes_no_byte_is_an_error(tmp_path: Path) -> None:
    class NoBytes(Files):
        def pwrite(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
            return 0

    files = NoBytes()
    descriptor = files.open(tmp_path / "log", create=True)
    with pytest.raises(OSError, match="takes no more bytes"):
        files.write(descriptor, b"x", 0)
    files.close(descriptor)


def test_a_sync_brings_all_new_names_above_a_file_to_the_disk(tmp_path: Path) -> None:
    class Noted(Files):
        synced: ClassVar[list[Path]] = []

        def sync_directory(self, path: Path) -> None:
            self.synced.append(path)

    files = Noted()
    files.make_directories(tmp_path / "a" / "b")
    descriptor = files.open(tmp_path / "a" / "b" / "log", create=True)
    files.sync(descriptor, tmp_path / "a" / "b" / "log")
    assert files.synced == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    files.sync(descriptor, tmp_path / "a" / "b" / "log")
    assert len(files.synced) == 3
    files.close(descriptor)


def test_names_whose_sync_fails_are_synced_the_next_time(tmp_path: Path) -> None:
    files = FailingFiles()
    descriptor = files.open(tmp_path / "log", create=True)
    files.fail(at=1, operation="sync_directory", error=errno.EIO)
    with pytest.raises(SyncFailed, match=str(tmp_path)):
        files.sync(descriptor, tmp_path / "log")
    files.fail(at=0, operation="sync_directory")
    files.sync(descriptor, tmp_path / "log")
    assert files.count == 1
    files.close(descriptor)


def test_a_directory_is_held_by_one_broker_of_a_process(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StateError, match="is in use by another broker"):
        DirectoryLock(tmp_path / ".." / tmp_path.name)
    lock.release()
    DirectoryLock(tmp_path).release()


@pytest.mark.live
def test_a_directory_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from evenq.broker.store.files import DirectoryLock
lock = DirectoryLock(Path({str(tmp_path)!r}))
print("held", flush=True)
input()
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StateError, match="is in use by another broker: stop that, or give another directory"):
            DirectoryLock(tmp_path)
        other.communicate("\n")
    DirectoryLock(tmp_path).release()


SIZE = 16


def test_files_are_named_by_their_first_position_and_have_their_full_size_at_once(tmp_path: Path) -> None:
    run = Segments(tmp_path, SIZE)
    run.write(0, b"a" * 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000000", "00000000000000000016"]
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {SIZE}
    assert (run.start, run.end) == (0, 2 * SIZE)


def test_reading_crosses_files(tmp_path: Path) -> None:
    run = Segments(tmp_path, SIZE)
    content = bytes(range(60))
    run.write(0, content)
    assert run.read(10, 40) == content[10:50]
    assert Segments(tmp_path, SIZE).read(31, 2) == content[31:33]


def test_what_lies_behind_a_cut_is_gone_and_reads_as_zeros(tmp_path: Path) -> None:
    run = Segments(tmp_path, SIZE)
    run.write(0, b"x" * 40)
    run.cut(20)
    assert [segment.start for segment in run.files] == [0, 16]
    assert run.read(16, 16) == b"xxxx" + bytes(12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000000", "00000000000000000016"]


def test_a_cut_at_the_border_of_two_files_removes_the_second(tmp_path: Path) -> None:
    run = Segments(tmp_path, SIZE)
    run.write(0, b"x" * 32)
    run.cut(16)
    assert run.end == 16
    run.write(16, b"y")
    assert run.read(15, 2) == b"xy"


def test_a_run_may_begin_anywhere(tmp_path: Path) -> None:
    run = Segments(tmp_path, SIZE)
    run.write(100, b"late")
    assert run.start == 96
    assert run.read(100, 4) == b"late"


def test_a_file_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(20))
    with pytest.raises(StateError, match="00000000000000000000 has 20 bytes and must have 16"):
        Segments(tmp_path, SIZE)


def test_files_of_a_smaller_size_are_refused_by_name(tmp_path: Path) -> None:
    for start in (0, 8):
        (tmp_path / f"{start:020d}").write_bytes(bytes(8))
    with pytest.raises(StateError, match="00000000000000000008 has 8 bytes and must have 16"):
        Segments(tmp_path, SIZE)


def test_files_without_their_size_on_the_disk_get_it_back(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"12345")
    (tmp_path / f"{16:020d}").write_bytes(b"67")
    assert Segments(tmp_path, SIZE).read(0, 32) == b"12345" + bytes(11) + b"67" + bytes(14)


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert Segments(tmp_path, SIZE).files == []


def test_the_map_shows_what_is_written_later(tmp_path: Path) -> None:
    run = Segments(tmp_path, SIZE)
    run.write(0, b"first")
    view = run.files[0].map
    run.write(5, b"second")
    run.files[0].unload()
    assert view[:11] == b"firstsecond"


@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "cut", "reopen"]), st.binary(min_size=1, max_size=50), st.floats(0, 1))
    )
)
def test_a_run_behaves_like_one_array(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, float]]
) -> None:
    directory = tmp_path_factory.mktemp("run")
    run, model = Segments(directory, SIZE), bytearray()
    for kind, data, where in steps:
        if kind == "write":
            run.write(len(model), data)
            model += data
        elif kind == "cut":
            del model[int(where * len(model)) :]
            run.cut(len(model))
        else:
            run.close()
            run = Segments(directory, SIZE)
        assert run.end >= len(model)
        if model:
            assert run.read(0, len(model)) == bytes(model)
    if run.end > len(model):
        assert run.read(len(model), run.end - len(model)) == bytes(run.end - len(model))
    run.close()
