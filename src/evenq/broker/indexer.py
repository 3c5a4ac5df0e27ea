"""Keeping the index of a store up with its log: a little at a time, beside the requests of clients.

A small piece is taken between two requests. A larger one goes to another thread, which lets another process find its
keys if it is large indeed, so that the broker's own thread goes on serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from evenq.broker.store.store import Store
from evenq.errors import StateError
from evenq.supervision import Supervisor

if TYPE_CHECKING:
    from evenq.broker.store.index import Index

__all__ = ["Indexer"]

log = logging.getLogger(__name__)

# How long new messages may wait before they are taken up; whoever asks for one does not wait.
_PAUSE = 0.25
# Pieces of the log in bytes: up to the first the broker's own thread takes them, and none is larger than the second.
_SMALL = 64 * 1024
_LARGE = 4 * 1024 * 1024
# What a stop still takes up: whatever is beyond it is taken up after the next start.
_LAST_EFFORT = 64 * 1024 * 1024


class Indexer:
    """The index of a store, and the task that fills it. The first question for it waits until it is opened."""

    def __init__(self, store: Store, directory: Path, clock: Callable[[], float]) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._index: Index | None = None
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # work in another thread, which a stop must wait for
        self._work: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take up what is left, within reason, and close the files."""
        if self._task is not None:
            self._task.cancel()
        tasks = [task for task in (self._task, self._work) if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        index, self._index = self._index, None
        if index is not None:
            try:
                while 0 < index.behind <= _LAST_EFFORT:
                    index.advance()
            except OSError as error:
                log.error("%s: the index is not complete: %s", self._directory, error)
            index.close()

    async def current(self) -> Index:
        """The index, when it holds everything that is in the log now."""
        await self._opened.wait()
        wanted = self._store.log.end
        async with self._turn:
            while self._index is not None and self._index.position < wanted:
                await self._advance(self._index)
            if self._index is None:
                raise StateError("the broker is stopping: ask it again when it runs")
            return self._index

    async def _advance(self, index: Index) -> None:
        piece = index.next(_LARGE)
        if piece.size <= _SMALL:
            index.done(piece, index.take(piece))
            await asyncio.sleep(0)
            return

        async def work() -> None:
            index.done(piece, await asyncio.to_thread(index.take, piece))

        # whoever is told to stop meanwhile: the work goes on
        self._work = asyncio.create_task(work())
        await asyncio.shield(self._work)

    async def _run(self) -> None:
        await Supervisor(f"the index in {self._directory}", first_pause_s=_PAUSE).repeat(self._step)

    async def _step(self) -> None:
        """Open the index if it is not open, take up what is new, and wait a little."""
        if not self._opened.is_set():
            await self._open()
        index = await self.current()
        async with self._turn:
            index.trim()
            index.rest()
        await asyncio.sleep(_PAUSE)

    async def _open(self) -> None:
        # numpy takes a while to load, and nobody need wait for it
        await asyncio.to_thread(import_module, "evenq.broker.store.index")
        from evenq.broker.store.index import Index

        if self._index is not None:
            # an earlier attempt opened the files and failed to mend them
            index, self._index = self._index, None
            index.close()
        self._index = Index(self._directory, self._store.log, clock=self._clock, clean=self._store.was_closed)
        self._work = asyncio.create_task(asyncio.to_thread(self._index.mend))
        await asyncio.shield(self._work)
        self._store.save_with_checkpoints(self._index.saver)
        self._opened.set()
