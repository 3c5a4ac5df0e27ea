"""Keeping the index of a store up with its log: a little at a time, beside the requests of clients.

A small piece is taken between two requests. A larger one goes to another thread, which lets another process find its
keys if it is large indeed, so that the broker's own thread goes on serving.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evenq.broker.store.store import Store
from evenq.errors import EvenqError, StateError
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
# so many messages with a key are found before others have their turn
_FOUND_AT_ONCE = 32

T = TypeVar("T")


class Indexer:
    """The index of a store, and the task that fills it. The first question for it waits until it is opened."""

    def __init__(self, store: Store, directory: Path, clock: Callable[[], float]) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._index: Index | None = None
        # set when the first attempt to open it is over; and why it failed
        self._opened = asyncio.Event()
        self._broken: Exception | None = None
        # whether checkpoints save it
        self._is_saved = False
        self._task: asyncio.Task[None] | None = None
        # work in another thread, which a stop must wait for
        self._work: asyncio.Task[Any] | None = None
        self._turn = asyncio.Lock()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take up what is left, within reason, and close the files."""
        # searches look at this, and end
        index, self._index = self._index, None
        if self._task is not None:
            self._task.cancel()
        tasks = [task for task in (self._task, self._work) if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        async with self._turn:
            pass
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
        if self._broken is not None:
            raise StateError(f"the index in {self._directory} cannot be opened: {self._broken}")
        wanted = self._store.log.end
        async with self._turn:
            while self._index is not None and self._index.position < wanted:
                await self._advance(self._index)
            if self._index is None:
                raise StateError("the broker is stopping: ask it again when it runs")
            return self._index

    async def search(self, topic: str, key: str, begin: int, end: int, take: Callable[[int], bool]) -> tuple[int, int]:
        """Give ``take`` what :meth:`Index.find` finds until it wants no more; what :attr:`Index.last` is.

        A key may have millions of messages: they are found in another thread, a few at a time.
        """
        index = await self.current()
        found = index.find(topic, key, begin, end)
        async with self._turn:
            while True:
                if self._index is not index:
                    raise StateError("the broker is stopping: ask it again when it runs")
                offsets = await self._in_thread(lambda: list(islice(found, _FOUND_AT_ONCE)))
                for offset in offsets:
                    if not take(offset):
                        return index.last
                if len(offsets) < _FOUND_AT_ONCE:
                    return index.last

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do something in another thread. Whoever is told to stop meanwhile: the work goes on, and a stop waits for
        it."""
        task = asyncio.create_task(asyncio.to_thread(work))
        self._work = task
        return await asyncio.shield(task)

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
        try:
            if self._broken is not None or not self._opened.is_set():
                await self._open()
            index = await self.current()
            async with self._turn:
                index.trim()
                index.rest()
        except Exception as error:
            async with self._turn:
                if not isinstance(error, OSError | EvenqError):
                    self._set_aside(error)
                elif not self._opened.is_set():
                    self._broken = error
            # who asks is told; it is tried again after a pause
            self._opened.set()
            raise
        await asyncio.sleep(_PAUSE)

    def _set_aside(self, error: Exception) -> None:
        """Begin anew: what is in the files cannot be, and everything in them can be found in the log again."""
        self._broken = error
        index, self._index = self._index, None
        if index is not None:
            try:
                index.close()
            except Exception as failure:  # noqa: BLE001 - whatever is wrong with it, it is not used any more
                log.info("%s: closing the damaged index: %s", self._directory, failure)
        if self._directory.exists():
            aside = self._directory.with_name(f"{self._directory.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            self._directory.rename(aside)
            log.error("the index in %s is damaged: it is made again, the old one is kept as %s", self._directory, aside)

    async def _open(self) -> None:
        # numpy takes a while to load, and nobody need wait for it
        await asyncio.to_thread(import_module, "evenq.broker.store.index")
        from evenq.broker.store.index import Index

        if self._index is not None:
            # an earlier attempt opened the files and failed to mend them
            index, self._index = self._index, None
            index.close()
        self._index = Index(self._directory, self._store.log, clock=self._clock, clean=self._store.was_closed)
        await self._in_thread(self._index.mend)
        if not self._is_saved:
            self._is_saved = True
            self._store.save_with_checkpoints(self._saver)
        self._broken = None
        self._opened.set()

    def _saver(self) -> Callable[[], None]:
        """For a checkpoint: saves the index as it is now, if there is one."""
        return (lambda: None) if self._index is None else self._index.saver()
