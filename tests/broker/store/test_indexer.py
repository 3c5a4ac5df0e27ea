"""Filling the index beside everything else, and what it does when something is wrong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from evenq.broker.store.index import Index
from evenq.broker.store.indexer import Indexer
from evenq.broker.store.store import NewMessage, Store
from evenq.errors import StateError
from evenq.protocol.properties import encode_properties


def put(store: Store, key: str, size: int = 10) -> None:
    properties = encode_properties({"KEYS": key})
    store.append(NewMessage("orders", 0, bytes(size), properties, None, 0, "127.0.0.1:1"))
    store.commit()


def find(index: Index, key: str) -> int:
    return len(list(index.find("orders", key, 0, 2**60)))


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[Store, Indexer]]:
    store = Store(directory, "127.0.0.1:10911", clock=lambda: 1.0)
    indexer = Indexer(store, directory / "index", clock=lambda: 1.0)
    indexer.start()
    try:
        yield store, indexer
    finally:
        await indexer.stop()
        store.close()


async def current(indexer: Indexer) -> Index:
    """The index, as soon as it can be opened."""
    while True:
        try:
            return await indexer.current()
        except StateError:
            await asyncio.sleep(0.01)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await scene()

    asyncio.run(within())


def test_whoever_asks_finds_what_is_there(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            for number in range(10):
                put(store, f"k{number}", size=200_000)
                assert find(await indexer.current(), f"k{number}") == 1

    run(scene)


@pytest.mark.live
def test_it_keeps_up_by_itself_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            index = await indexer.current()
            for number in range(20):
                put(store, f"k{number}", size=500_000)
            turns = 0
            while index.behind:
                turns += 1
                await asyncio.sleep(0)
            assert turns > 10
            assert [find(index, f"k{number}") for number in range(20)] == [1] * 20
            assert index._finder.is_running, "so much is for a process of its own"

    run(scene)


def test_a_stop_takes_up_the_rest_and_a_question_then_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            await indexer.current()
            put(store, "late")
            await indexer.stop()
            with pytest.raises(StateError, match="stopping"):
                await indexer.current()
        async with opened(tmp_path) as (_, indexer):
            assert find(await indexer.current(), "late") == 1

    run(scene)


def test_a_stop_before_it_has_begun(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as (store, _):
            put(store, "early")
        async with opened(tmp_path) as (_, indexer):
            assert find(await indexer.current(), "early") == 1

    run(scene)


def test_a_full_disk_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            put(store, "first")
            await indexer.current()
            put(store, "second")
            with monkeypatch.context() as full:
                full.setattr(os, "pwrite", refuse)
                with pytest.raises(OSError, match="No space"):
                    await indexer.current()
            index = await indexer.current()
            assert [find(index, key) for key in ("first", "second")] == [1, 1]

    run(scene)


def test_an_index_that_cannot_be_opened_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mend, failures = Index.mend, [OSError(28, "No space left on device")]

    def mend_later(index: Index) -> None:
        if failures:
            raise failures.pop()
        mend(index)

    monkeypatch.setattr(Index, "mend", mend_later)

    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            put(store, "first")
            # who asks meanwhile is told, and need not wait
            with pytest.raises(StateError, match="No space left on device"):
                await indexer.current()
            assert find(await current(indexer), "first") == 1

    run(scene)
    assert "No space left on device; trying again in 0.25 s" in caplog.text


@pytest.mark.parametrize("kill", [True, False])
def test_an_index_with_a_damaged_count_is_made_again(tmp_path: Path, kill: bool) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            put(store, "first")
            assert find(await indexer.current(), "first") == 1
        (file,) = (tmp_path / "index").iterdir()
        with file.open("r+b") as header:
            header.seek(36)
            header.write((2**31 - 1).to_bytes(4, "big"))
        if kill:
            (tmp_path / "abort").touch()
        async with opened(tmp_path) as (store, indexer):
            put(store, "second")
            found: set[str] = set()
            while len(found) < 2:
                for key in ("first", "second"):
                    # a question may be what comes upon the damage
                    with suppress(StateError, ValueError, IndexError):
                        if find(await indexer.current(), key) == 1:
                            found.add(key)
                await asyncio.sleep(0.01)
            store.checkpoint()()
        assert (tmp_path / "index.damaged" / file.name).exists()

    run(scene)


def test_a_search_ends_when_no_more_is_wanted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as (store, indexer):
            for _ in range(200):
                put(store, "hot")
            found: list[int] = []

            def take(offset: int) -> bool:
                found.append(offset)
                return len(found) < 70

            last, _ = await indexer.search("orders", "hot", 0, 2**60, take)
            assert len(set(found)) == 70
            assert max(found) == found[0] == last

    run(scene)
