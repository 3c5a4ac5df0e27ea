"""Waiting for the disk without holding up the loop: many messages, one wait."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from evenq.broker.server import Connection
from evenq.broker.store.store import Store
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from evenq.supervision import FailureLog

__all__ = ["Flusher"]

log = logging.getLogger(__name__)


class Flusher:
    """Syncs a store in threads of its own.

    With synchronous flush each answer waits for a sync that began after its message was written. While one sync
    runs, the messages that come wait together for the next: the slower the disk, the larger the groups.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # one thread for answers that wait, one for the rest, which may take long
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="evenq-flush")
        self._waiting: list[tuple[Connection, Command]] = []
        self._syncing = False
        self._checkpoint: asyncio.Future[None] | None = None
        self._failures = FailureLog("a checkpoint of the store")

    def answer_when_synced(self, reply: Command, connection: Connection) -> None:
        self._waiting.append((connection, reply))
        connection.wait()
        if not self._syncing:
            self._syncing = True
            # not at once: the message is written when all requests of this read are handled
            asyncio.get_running_loop().call_soon(self._sync)

    def _sync(self) -> None:
        group, self._waiting = self._waiting, []
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._store.sync_log)
        future.add_done_callback(lambda done: self._synced(group, done.exception()))

    def _synced(self, group: list[tuple[Connection, Command]], error: BaseException | None) -> None:
        if error is not None:
            log.error("the disk failed: %s", error)
        answers: dict[Connection, list[Command]] = {}
        for connection, reply in group:
            if error is not None:
                reply.code, reply.remark = ResponseCode.FLUSH_DISK_TIMEOUT, f"stored, but the disk failed: {error}"
            answers.setdefault(connection, []).append(reply)
        for connection, replies in answers.items():
            connection.send(*replies)
            for _ in replies:
                connection.done()
        if self._waiting:
            self._sync()
        else:
            self._syncing = False

    def checkpoint(self) -> None:
        """Begin to bring everything to the disk, unless that is going on already."""
        if self._checkpoint is None or self._checkpoint.done():
            wait = self._store.checkpoint()
            self._checkpoint = asyncio.get_running_loop().run_in_executor(self._threads, wait)
            self._checkpoint.add_done_callback(self._note_end)

    def _note_end(self, checkpoint: asyncio.Future[None]) -> None:
        error = checkpoint.exception()
        if isinstance(error, Exception):
            self._failures.record(error, "the next one is tried soon")

    async def stop(self) -> None:
        """Wait for what is going on."""
        if self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
        await asyncio.to_thread(self._threads.shutdown)
