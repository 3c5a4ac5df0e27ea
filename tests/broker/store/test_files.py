import errno
import stat
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from evenq.broker.store.files import DirectoryLock, Files, SyncFailed
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
