"""Small files that are replaced whole."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from evenq.broker.store.statefile import StateFile
from evenq.errors import StateError
from tests.broker.store.failing import OPERATIONS, FailingFiles


def decode(content: bytes) -> bytes:
    if content.startswith(b"!"):
        raise StateError("it begins with !")
    return content


def load(path: Path) -> bytes | None:
    return StateFile(path).load(decode)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_replaced_and_the_one_on_the_disk_kept(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "config" / "topics.json")
    file.save(b"one")
    file.sync()
    file.save(b"two")
    assert load(file.path) == b"two"
    assert file.backup.read_bytes() == b"one"
    # this one was on no disk: it is no backup
    file.save(b"three")
    assert (load(file.path), file.backup.read_bytes()) == (b"three", b"one")
    assert names(file.path.parent) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("content", [None, b"", b"  \n", bytes(100)])
def test_the_backup_is_read_if_the_file_is_missing_or_empty(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "offsets.json"
    assert load(path) is None
    (tmp_path / "offsets.json.bak").write_bytes(b"old")
    if content is not None:
        path.write_bytes(content)
    assert load(path) == b"old"


def test_the_backup_is_read_if_the_file_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"!garbage")
    path.with_name("offsets.json.bak").write_bytes(b"old")
    assert load(path) == b"old"
    assert path.with_name("offsets.json.damaged").read_bytes() == b"!garbage"
    assert "offsets.json is damaged (it begins with !)" in caplog.text
    assert load(path) == b"old"


def test_two_damaged_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"!one")
    path.with_name("offsets.json.bak").write_bytes(b"!two")
    with pytest.raises(StateError, match=r"offsets\.json cannot be read \(it begins with !\), nor can its \.bak"):
        load(path)
    assert names(tmp_path) == ["offsets.json", "offsets.json.bak"]


@pytest.mark.parametrize("number", range(1, 12))
def test_whatever_fails_the_old_or_the_new_content_is_found(tmp_path: Path, number: int) -> None:
    files = FailingFiles()
    file = StateFile(tmp_path / "topics.json", files)
    file.save(b"one")
    file.sync()
    files.fail(at=number, error=errno.EIO)
    done = False
    try:
        file.save(b"two")
        done = True
        file.sync()
    except OSError:
        assert load(file.path) == (b"two" if done else b"one")
    else:
        assert not files.failed
        assert load(file.path) == b"two"
    files.fail(at=0)
    file.save(b"three")
    file.sync()
    assert load(file.path) == b"three"


def test_the_operations_that_can_fail_are_those_of_files() -> None:
    assert all(callable(getattr(FailingFiles, name)) for name in OPERATIONS)


def test_a_file_without_a_backup_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    files = FailingFiles()
    file = StateFile(tmp_path / "topics.json", files)
    files.fail(at=1, operation="datasync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.save(b"one")
    assert load(file.path) is None
    file.save(b"one")
    file.sync()
    files.fail(at=1, operation="datasync", error=errno.EIO)
    file.save(b"two")
    assert (load(file.path), file.backup.read_bytes()) == (b"two", b"one")


def test_a_file_that_a_killed_process_left_without_a_backup_is_replaced_safely(tmp_path: Path) -> None:
    StateFile(tmp_path / "topics.json").save(b"one")
    files = FailingFiles()
    file = StateFile(tmp_path / "topics.json", files)
    assert file.load(decode) == b"one"
    files.fail(at=1, operation="datasync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.save(b"two")
    assert load(file.path) == b"one"
