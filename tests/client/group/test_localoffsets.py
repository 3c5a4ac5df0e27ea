"""Offsets in a file: Java's format, and whole whatever moment the machine stops at."""

import os
from pathlib import Path

import pytest

from evenq.client.group.localoffsets import OffsetFile
from evenq.model import MessageQueue

A, B = (MessageQueue("orders", "broker-a", n) for n in range(2))


def test_the_file_reads_as_java_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(
        b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"orders"\n\t\t}:8'
        b',{"brokerName":"broker-a","queueId":0,"topic":"orders"}:5\n\t}\n}'
    )
    assert OffsetFile(path).read() == {A: 5, B: 8}


def test_what_was_written_is_read_and_the_one_before_is_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "member" / "group" / "offsets.json"
    file = OffsetFile(path)
    assert file.read() == {}
    for offset in (1, 2, 3):
        file.write({A: offset})
    assert file.read() == {A: 3}
    assert sorted(each.name for each in path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]
    path.write_bytes(b'{"offsetTable":{{"brokerName"')
    assert file.read() == {A: 2}
    path.unlink()
    assert file.read() == {A: 2}
    file.write({A: 4})
    assert file.read() == {A: 4}


class Stop(BaseException):
    """The machine stops."""


@pytest.mark.parametrize("steps", range(12))
def test_whatever_the_moment_of_a_stop_an_earlier_table_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    file = OffsetFile(tmp_path / "offsets.json")
    file.write({A: 1})
    file.write({A: 2})
    left = [steps]

    def stopping(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object, **kwargs: object) -> object:
            if left[0] == 0:
                raise Stop
            left[0] -= 1
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "link", "unlink", "replace", "open"):
        stopping(name)
    try:
        file.write({A: 3})
    except Stop:
        assert left == [0]
    monkeypatch.undo()
    assert OffsetFile(tmp_path / "offsets.json").read()[A] in (2, 3)
