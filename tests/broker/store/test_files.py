import subprocess
import sys
from pathlib import Path

import pytest

from evenq.broker.store.files import DirectoryLock, read_or_backup, replace_file
from evenq.errors import StateError


def test_a_file_is_replaced_and_the_one_before_kept(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    replace_file(path, b"one", backup=True)
    replace_file(path, b"two", backup=True, sync=False)
    assert path.read_bytes() == b"two"
    assert sorted(found.name for found in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]
    assert (path.parent / "topics.json.bak").read_bytes() == b"one"


@pytest.mark.parametrize("content", [None, b"", b"  \n"])
def test_the_backup_is_read_where_the_file_is_missing_or_empty(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "offsets.json"
    assert read_or_backup(path) is None
    (tmp_path / "offsets.json.bak").write_bytes(b"old")
    if content is not None:
        path.write_bytes(content)
    assert read_or_backup(path) == b"old"


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
