"""Small files that are replaced whole, and what is kept in them."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from evenq.broker.store.state_files import AbortFile, Checkpoint, ConfigFiles, StateFile
from evenq.errors import StateError
from evenq.protocol.bodies import DataVersion, GroupConfig, GroupConfigTable, TopicConfig, TopicConfigTable
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


# in fastjson's form: numbers as keys stand without quotes
JAVA_OFFSETS = """{
\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1763231000000},
\t"offsetTable":{
\t\t"orders@billing":{0:7,1:12},
\t\t"%RETRY%billing@billing":{0:0}
\t}
}"""


def test_topics_are_saved_under_javas_names(tmp_path: Path) -> None:
    files = ConfigFiles(tmp_path)
    table = TopicConfigTable(
        topic_config_table={"orders": TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8)},
        data_version=DataVersion(counter=2, timestamp=5),
    )
    files.save_topics(table)
    assert files.load_topics() == table
    saved = json.loads((tmp_path / "topics.json").read_text())
    assert saved["topicConfigTable"]["orders"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
    assert saved["dataVersion"] == {"counter": 2, "stateVersion": 0, "timestamp": 5}


def test_groups_are_saved_and_found_again(tmp_path: Path) -> None:
    files = ConfigFiles(tmp_path)
    assert files.load_groups() == GroupConfigTable()
    table = GroupConfigTable(subscription_group_table={"g": GroupConfig(group_name="g", retry_max_times=3)})
    files.save_groups(table)
    assert files.load_groups() == table


def test_offsets_are_read_in_fastjsons_form(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text(JAVA_OFFSETS)
    assert ConfigFiles(tmp_path).load_offsets() == {
        ("orders", "billing"): {0: 7, 1: 12},
        ("%RETRY%billing", "billing"): {0: 0},
    }


def test_offsets_are_saved_as_plain_json(tmp_path: Path) -> None:
    files = ConfigFiles(tmp_path)
    files.save_offsets({("orders", "billing"): {0: 7}})
    assert json.loads((tmp_path / "consumerOffset.json").read_text())["offsetTable"] == {"orders@billing": {"0": 7}}
    assert files.load_offsets() == {("orders", "billing"): {0: 7}}


def test_a_file_that_cannot_be_read_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text("{broken")
    with pytest.raises(StateError, match=r"topics\.json cannot be read .*, nor can its \.bak: mend or remove them"):
        ConfigFiles(tmp_path).load_topics()


def test_times_stand_where_java_reads_them() -> None:
    page = Checkpoint(log_time=1, queue_time=2, index_time=3, mark=4).encode()
    assert len(page) == 4096
    assert page[:24].hex() == "000000000000000100000000000000020000000000000003"


def test_a_page_by_java_has_no_mark() -> None:
    page = bytes(7) + b"\x05" + bytes(4088)
    assert Checkpoint.decode(page) == Checkpoint(log_time=5, by_java=True)


@pytest.mark.parametrize("damage", range(64, 92))
def test_a_damaged_mark_counts_as_none(damage: int) -> None:
    page = bytearray(Checkpoint(mark=1_000_000).encode())
    page[damage] ^= 0x10
    assert Checkpoint.decode(bytes(page)).mark == 0


def test_a_page_that_java_wrote_since_says_so() -> None:
    page = bytearray(Checkpoint(5, 4, 3, mark=2).encode())
    assert not Checkpoint.decode(bytes(page)).by_java
    page[7] = 6
    assert Checkpoint.decode(bytes(page)) == Checkpoint(6, 4, 3, mark=2, by_java=True)


def test_a_mark_of_an_earlier_version_is_understood() -> None:
    page = bytearray(4096)
    page[64:88] = b"evenq-01" + (77).to_bytes(8, "big") + (~77).to_bytes(8, "big", signed=True)
    assert Checkpoint.decode(bytes(page)) == Checkpoint(mark=77)


def test_a_short_page_is_refused() -> None:
    with pytest.raises(StateError, match="has 10 bytes and must have 4096"):
        Checkpoint.decode(bytes(10))


@pytest.mark.parametrize(("log_time", "queue_time", "safe"), [(10_000, 9_000, 6_000), (5_000, 9_000, 2_000), (0, 9, 0)])
def test_the_safe_time_is_three_seconds_before_the_earlier_one(log_time: int, queue_time: int, safe: int) -> None:
    assert Checkpoint(log_time, queue_time).safe_time == safe


def test_the_abort_file_is_there_while_a_store_is_open(tmp_path: Path) -> None:
    abort = AbortFile(tmp_path / "new" / "abort")
    assert not abort.found
    abort.set()
    assert abort.found
    abort.clear()
    assert not abort.found
    abort.clear()
