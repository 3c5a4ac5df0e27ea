"""Answers that wait for the disk."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from evenq.broker.flusher import Flusher
from evenq.broker.server import Connection
from evenq.broker.store.store import Store
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from tests.broker.store.messages import open_store


class Peer:
    """Takes what a connection would send."""

    def __init__(self) -> None:
        self.writes: list[list[int]] = []
        self.codes: set[int] = set()

    def wait(self) -> None: ...

    def done(self) -> None: ...

    def send(self, *replies: Command) -> None:
        self.writes.append([reply.opaque for reply in replies])
        self.codes |= {reply.code for reply in replies}


class SlowDisk:
    """Stands before a store's sync and lets it pass when told."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.ready = threading.Semaphore(0)
        self.error: OSError | None = None
        monkeypatch.setattr(store, "sync_log", self.sync_log)

    def sync_log(self) -> int:
        assert self.ready.acquire(timeout=10)
        self.syncs += 1
        if self.error is not None:
            raise self.error
        return 0


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_messages_that_come_while_the_disk_is_busy_share_the_next_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    disk = SlowDisk(store, monkeypatch)
    first, second = Peer(), Peer()

    async def scenario() -> None:
        flusher = Flusher(store)

        def wait(peer: Peer, opaque: int) -> None:
            flusher.answer_when_synced(Command(0, opaque=opaque), cast(Connection, peer))

        wait(first, 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for opaque in range(2, 50):
            wait(first if opaque % 2 else second, opaque)
        assert first.writes == second.writes == []
        disk.ready.release()
        await until(lambda: first.writes == [[1]])
        assert second.writes == []
        disk.ready.release()
        await until(lambda: len(second.writes) == 1)
        assert first.writes == [[1], list(range(3, 50, 2))]
        assert second.writes == [list(range(2, 50, 2))]
        assert disk.syncs == 2
        await flusher.stop()

    asyncio.run(scenario())
    store.close()


def test_a_disk_that_fails_is_told_to_those_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    disk = SlowDisk(store, monkeypatch)
    disk.error = OSError(5, "Input/output error")
    disk.ready.release()
    peer = Peer()

    async def scenario() -> None:
        flusher = Flusher(store)
        flusher.answer_when_synced(Command(0, opaque=1), cast(Connection, peer))
        await until(lambda: peer.writes)
        await flusher.stop()

    asyncio.run(scenario())
    assert peer.codes == {ResponseCode.FLUSH_DISK_TIMEOUT}
    store.close()


def test_a_checkpoint_is_not_begun_while_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    done = threading.Event()
    begun: list[int] = []

    def checkpoint() -> Callable[[], None]:
        begun.append(1)

        def wait() -> None:
            assert done.wait(10)

        return wait

    async def scenario() -> None:
        flusher = Flusher(store)
        with monkeypatch.context() as patch:
            patch.setattr(store, "checkpoint", checkpoint)
            for _ in range(5):
                flusher.checkpoint()
            assert len(begun) == 1
            done.set()

            def begun_again() -> bool:
                flusher.checkpoint()
                return len(begun) == 2

            await until(begun_again)
            await flusher.stop()

    asyncio.run(scenario())
    store.close()
