"""A broker whose disk is full or broken: what it has acknowledged is there, what it has refused is not."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenq.broker import BrokerSettings
from evenq.broker.store.files import OS_FILES, Files
from evenq.errors import StateError
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.clusters import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.live

TOPIC = "orders"
SMALL = BrokerSettings(log_file_size=1 << 20)


class Disk:
    """The disk of all brokers of this process; it takes nothing that ``refuses`` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses: Callable[[str, Path | None], int] = lambda operation, path: 0
        self._real = Files()
        monkeypatch.setattr(OS_FILES, "pwrite", self._pwrite)
        monkeypatch.setattr(OS_FILES, "datasync", self._datasync)
        monkeypatch.setattr(OS_FILES, "rename", self._rename)
        self._rename_real = Files.rename

    def _check(self, operation: str, path: Path | None = None) -> None:
        error = self.refuses(operation, path)
        if error:
            raise OSError(error, os.strerror(error))

    def _pwrite(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        self._check("pwrite")
        return self._real.pwrite(descriptor, data, at)

    def _datasync(self, descriptor: int) -> None:
        self._check("datasync")
        self._real.datasync(descriptor)

    def _rename(self, path: Path, target: Path) -> None:
        self._check("rename", target)
        Files.rename(OS_FILES, path, target)

    def fill(self) -> None:
        self.refuses = lambda operation, path: errno.ENOSPC if operation == "pwrite" else 0

    def mend(self) -> None:
        self.refuses = lambda operation, path: 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.mend()


@pytest.fixture(params=["async", "sync"])
def broker(request: pytest.FixtureRequest, disk: Disk, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with cluster(data=tmp_path / "data", settings=BrokerSettings(flush=request.param)) as running:
        create_topic(running.namesrv, TOPIC, queues=2)
        yield running
        disk.mend()


@pytest.fixture
def peer(broker: EmbeddedCluster) -> Iterator[Peer]:
    with Peer(broker.brokers["broker-a"].address) as connected:
        yield connected


@pytest.fixture
def small(disk: Disk, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A broker whose files are quickly copied."""
    with cluster(data=tmp_path / "data", settings=SMALL) as running:
        create_topic(running.namesrv, TOPIC, queues=2)
        yield running
        disk.mend()


def send(peer: Peer, body: bytes, queue_id: int = 0) -> int:
    return peer.send(RequestCode.SEND_MESSAGE_V2, peer.send_header(TOPIC, queue_id), body)


def after_a_kill(tmp_path: Path) -> Path:
    """The data as the next process finds it."""
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    (tmp_path / "copy" / "broker-a" / "lock").unlink()
    return tmp_path / "copy"


def test_what_a_full_disk_refuses_is_never_acknowledged(disk: Disk, peer: Peer, tmp_path: Path) -> None:
    acknowledged = []
    for number in range(30):
        if number == 10:
            disk.fill()
        if number == 20:
            disk.mend()
        answer = peer.answer(send(peer, b"%d" % number))
        if answer.code == ResponseCode.SUCCESS:
            acknowledged.append(b"%d" % number)
        else:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark == "the broker cannot store anything now: No space left on device"
    assert acknowledged == [b"%d" % number for number in (*range(10), *range(20, 30))]
    assert [message.body for message in peer.pull(TOPIC)] == acknowledged
    with cluster(data=after_a_kill(tmp_path)) as again, Peer(again.brokers["broker-a"].address) as other:
        assert [message.body for message in other.pull(TOPIC)] == acknowledged


def test_other_requests_of_the_same_read_have_their_answers(disk: Disk, peer: Peer) -> None:
    peer.answer(send(peer, b"stored"))
    peer.heartbeat("billing", [TOPIC])
    disk.fill()
    lock = bodies.LockRequest(consumer_group="billing", client_id="c1", mq_set=[MessageQueue(TOPIC, "broker-a", 0)])
    refused = send(peer, b"lost")
    locked = peer.send(RequestCode.LOCK_BATCH_MQ, body=lock.encode())
    pulled = peer.send(RequestCode.PULL_MESSAGE, peer.pull_header(TOPIC))
    assert peer.answer(refused).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert peer.answer(locked).code == ResponseCode.SUCCESS
    assert peer.answer(pulled).code == ResponseCode.SUCCESS


def test_a_topic_that_cannot_be_saved_is_saved_later(disk: Disk, peer: Peer, tmp_path: Path) -> None:
    disk.refuses = lambda operation, path: (
        errno.ENOSPC if operation == "rename" and path is not None and path.name == "topics.json" else 0
    )
    create = headers.CreateTopic(topic="new", read_queue_nums=3, write_queue_nums=3)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create).code == ResponseCode.SERVICE_NOT_AVAILABLE
    disk.mend()
    saved = tmp_path / "data" / "broker-a" / "config" / "topics.json"
    wait_until(lambda: b'"new"' in saved.read_bytes(), "the topic in topics.json")


def lists_topic(cluster: EmbeddedCluster, topic: str) -> bool:
    with Peer(cluster.brokers["broker-a"].address) as peer:
        return peer.ask(RequestCode.GET_TOPIC_CONFIG, headers.TopicRequest(topic=topic)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "name", ["deletingTopics.json", "deletedTopics.json", "topics.json", "consumerOffset.json", "all of them"]
)
def test_a_topic_is_whole_or_gone_when_its_deletion_fails(
    disk: Disk, small: EmbeddedCluster, tmp_path: Path, name: str
) -> None:
    peer = Peer(small.brokers["broker-a"].address)
    peer.answer(send(peer, b"old"))
    peer.heartbeat("billing", [TOPIC])
    peer.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        headers.UpdateOffset(topic=TOPIC, queue_id=0, consumer_group="billing", commit_offset=1),
    )
    saved = tmp_path / "data" / "broker-a" / "config" / "consumerOffset.json"
    wait_until(lambda: saved.exists() and b"billing" in saved.read_bytes(), "the offset")
    disk.refuses = lambda operation, path: (
        errno.ENOSPC
        if operation == "rename" and path is not None and (path.name == name or name.startswith("all"))
        else 0
    )
    with peer:
        answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=TOPIC))
    assert (answer.code == ResponseCode.SUCCESS) == (name == "consumerOffset.json")
    left = after_a_kill(tmp_path)
    disk.mend()
    with cluster(data=left, settings=SMALL) as again, Peer(again.brokers["broker-a"].address) as other:
        is_there = lists_topic(again, TOPIC)
        assert is_there == (name in ("deletingTopics.json", "all of them"))
        if not is_there:
            create_topic(again.namesrv, TOPIC, queues=2)
        assert [message.body for message in other.pull(TOPIC)] == ([b"old"] if is_there else [])
        offset = headers.QueryOffset(consumer_group="billing", topic=TOPIC, queue_id=0, set_zero_if_not_found=False)
        found = other.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset)
        assert (found.code == ResponseCode.SUCCESS) == is_there


def test_a_deletion_that_failed_is_finished_later(disk: Disk, small: EmbeddedCluster, tmp_path: Path) -> None:
    peer = Peer(small.brokers["broker-a"].address)
    peer.answer(send(peer, b"old"))
    disk.refuses = lambda operation, path: (
        errno.ENOSPC if operation == "rename" and path is not None and path.name == "deletedTopics.json" else 0
    )
    answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=TOPIC))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    disk.mend()
    noted = tmp_path / "data" / "broker-a" / "config" / "deletingTopics.json"
    wait_until(lambda: noted.read_bytes() == b"[]", "the end of the deletion")
    create_topic(small.namesrv, TOPIC, queues=2)
    with peer:
        assert peer.pull(TOPIC) == []
        peer.answer(send(peer, b"new"))
    left = after_a_kill(tmp_path)
    with cluster(data=left, settings=SMALL) as again, Peer(again.brokers["broker-a"].address) as other:
        assert [message.body for message in other.pull(TOPIC)] == [b"new"]


def test_offsets_are_saved_after_the_disk_was_full(disk: Disk, peer: Peer, tmp_path: Path) -> None:
    for number in range(100):
        peer.answer(send(peer, b"%d" % number))
    peer.heartbeat("billing", [TOPIC])
    disk.fill()
    offset = headers.UpdateOffset(topic=TOPIC, queue_id=0, consumer_group="billing", commit_offset=99)
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset).code == ResponseCode.SUCCESS
    wait_until(lambda: not peer.has_answer(-1, 1.2), "two rounds of the housekeeping")
    disk.mend()
    saved = tmp_path / "data" / "broker-a" / "config" / "consumerOffset.json"
    wait_until(lambda: saved.exists() and b"99" in saved.read_bytes(), "the offset on the disk")


def test_a_reply_that_cannot_be_stored_is_refused(disk: Disk, broker: EmbeddedCluster, peer: Peer) -> None:
    with Peer(broker.brokers["broker-a"].address, "asker") as asker:
        beat = bodies.Heartbeat(client_id="asker", producer_data_set=[bodies.ProducerData(group_name="shop")])
        asker.ask(RequestCode.HEART_BEAT, body=beat.encode())
        peer.answer(send(peer, b"the reply topic is there"))
        disk.fill()
        header = peer.send_header("DefaultCluster_REPLY_TOPIC", properties="REPLY_TO_CLIENT\x01asker\x02")
        answer = peer.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"reply")
        assert (answer.code, answer.remark) == (
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "the broker cannot store anything now",
        )
        assert asker.silence()


@pytest.mark.parametrize("broker", ["sync"], indirect=True)
def test_after_a_failed_sync_nothing_is_acknowledged(disk: Disk, peer: Peer) -> None:
    assert peer.answer(send(peer, b"on the disk")).code == ResponseCode.SUCCESS
    disk.refuses = lambda operation, path: errno.EIO if operation == "datasync" else 0
    assert peer.answer(send(peer, b"perhaps")).code == ResponseCode.FLUSH_DISK_TIMEOUT
    # from now on the system would say that all is well
    disk.mend()
    refused = peer.answer(send(peer, b"refused"))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the store is read-only: the disk did not take what was written" in (refused.remark or "")
    assert [message.body for message in peer.pull(TOPIC)] == [b"on the disk", b"perhaps"]


def test_a_stop_on_a_full_disk_frees_the_directory(disk: Disk, tmp_path: Path) -> None:
    with cluster(data=tmp_path / "data", brokers=2) as running:
        create_topic(running.namesrv, TOPIC, queues=1)
        with Peer(running.brokers["broker-a"].address) as peer:
            peer.answer(send(peer, b"stored"))
            disk.fill()
    disk.mend()
    with cluster(data=tmp_path / "data") as again, Peer(again.brokers["broker-a"].address) as peer:
        assert [message.body for message in peer.pull(TOPIC)] == [b"stored"]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_start_that_fails_leaves_nothing_open(disk: Disk, tmp_path: Path) -> None:
    config = tmp_path / "data" / "broker-a" / "config"
    config.mkdir(parents=True)
    for name in ("timercheck", "timercheck.bak"):
        (config / name).write_bytes(b"garbled")
    descriptors = open_files()
    for _ in range(3):
        with pytest.raises(StateError, match="timercheck cannot be read"), cluster(data=tmp_path / "data"):
            pass
    assert open_files() <= descriptors
    for name in ("timercheck", "timercheck.bak"):
        (config / name).unlink()
    with cluster(data=tmp_path / "data") as running:
        assert running.brokers
