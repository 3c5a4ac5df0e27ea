"""A topic that was deleted stays deleted, and a new one of its name keeps its messages, however the broker ends."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evenq.broker.store.files import Files
from evenq.broker.store.retention import Retention
from evenq.broker.store.store import Store
from tests.broker.store.failing import FailingFiles
from tests.broker.store.messages import bodies, incoming, open_store


def killed(store: Store, directory: Path) -> Store:
    copy = directory.with_name(f"{directory.name}+")
    shutil.copytree(directory, copy)
    store.abandon()
    return open_store(copy)


def send(store: Store, *sent: str, topic: str = "orders") -> None:
    for body in sent:
        store.append(incoming(body, topic=topic))
    store.commit()


@pytest.mark.parametrize("checkpoint", ["before", "between", "after", "never"])
def test_a_new_topic_of_the_same_name_keeps_its_messages(tmp_path: Path, checkpoint: str) -> None:
    store = open_store(tmp_path / "a")

    def perhaps(when: str) -> None:
        if when == checkpoint:
            store.checkpoint()()

    send(store, *(f"old {number}" for number in range(10)))
    send(store, "other", topic="bills")
    perhaps("before")
    store.delete_topic("orders")
    perhaps("between")
    send(store, *(f"new {number}" for number in range(5)))
    perhaps("after")
    store.sync_log()
    again = killed(store, tmp_path / "a")
    assert bodies(again) == [b"new %d" % number for number in range(5)]
    assert bodies(again, "bills") == [b"other"]
    again.close()


def test_a_deleted_topic_does_not_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    send(store, "old")
    store.delete_topic("orders")
    assert not (tmp_path / "a" / "consumequeue" / "orders").exists()
    again = killed(store, tmp_path / "a")
    assert again.bounds("orders", 0) == (0, 0)
    assert not list(again.queues())
    again.close()


def test_empty_directories_are_not_queues(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "orders" / "0").mkdir(parents=True)
    store = open_store(tmp_path)
    assert not list(store.queues())
    store.close()


@pytest.mark.parametrize("operation", ["unlink", "rmdir"])
def test_what_an_interrupted_deletion_leaves_is_removed(tmp_path: Path, operation: str) -> None:
    files = FailingFiles()
    store = open_store(tmp_path / "a", files=files)
    for queue_id in range(3):
        store.append(incoming("old", queue_id=queue_id))
    store.commit()
    store.checkpoint()()
    files.fail(at=2, operation=operation)
    with pytest.raises(OSError, match="No space left"):
        store.delete_topic("orders")
    again = killed(store, tmp_path / "a")
    assert [again.bounds("orders", queue_id) for queue_id in range(3)] == [(0, 0)] * 3
    send(again, "new")
    assert bodies(again) == [b"new"]
    again.close()


def test_the_note_is_on_the_disk_before_files_go(tmp_path: Path) -> None:
    steps: list[str] = []

    class Watched(Files):
        def sync(self, descriptor: int, path: Path) -> None:
            steps.append(f"sync {path.name}")
            super().sync(descriptor, path)

        def unlink(self, path: Path) -> None:
            steps.append(f"unlink {path.parent.name}")
            super().unlink(path)

    store = open_store(tmp_path, files=Watched())
    send(store, "old")
    store.checkpoint()()
    steps.clear()
    store.delete_topic("orders")
    assert steps.index("sync deletedTopics.json") < steps.index("unlink 0")
    store.close()


def test_what_is_taken_back_does_not_hide_later_messages(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    send(store, "old")
    store.append(incoming("x" * 1000))
    store.delete_topic("orders")
    store.discard()
    send(store, "new")
    again = killed(store, tmp_path / "a")
    assert bodies(again) == [b"new"]
    again.close()


def test_what_was_staged_with_the_deletion_is_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    send(store, "old")
    store.append(incoming("late"))
    store.delete_topic("orders")
    store.append(incoming("new"))
    store.commit()
    again = killed(store, tmp_path / "a")
    assert bodies(again) == [b"new"]
    again.close()


def test_the_note_goes_with_the_messages(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, "old")
    store.delete_topic("orders")
    assert store.config.load_deleted_topics()
    for number in range(100):
        send(store, f"{number} ".ljust(200, "."), topic="bills")
    store.sync_log()
    store.retention = Retention(size=4096)
    store.checkpoint()()
    assert store.log.start > 0
    assert store.config.load_deleted_topics() == {}
    store.close()


class Meanwhile(Files):
    """Something happens while the disk is waited for: before or after the file that is synced ``at``-th."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at
        self.happens: Callable[[], None] | None = None

    def datasync(self, descriptor: int) -> None:
        self._pass()
        super().datasync(descriptor)
        self._pass()

    def _pass(self) -> None:
        if self.happens is not None:
            self._left -= 1
            if self._left < 0:
                happens, self.happens = self.happens, None
                happens()


@pytest.mark.parametrize("at", range(8))
def test_a_topic_may_be_deleted_while_a_checkpoint_waits_for_the_disk(tmp_path: Path, at: int) -> None:
    files = Meanwhile(at)
    store = open_store(tmp_path / "a", files=files)
    send(store, "old")
    send(store, "other", topic="bills")
    wait = store.checkpoint()
    files.happens = lambda: store.delete_topic("orders")
    wait()
    assert files.happens is None, "the checkpoint waits for fewer files"
    send(store, "new")
    store.checkpoint()()
    again = killed(store, tmp_path / "a")
    assert (bodies(again), bodies(again, "bills")) == ([b"new"], [b"other"])
    again.close()
