"""Answers that come later: a handler leaves a coroutine here, and what it gives is sent when it is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from evenq.broker.server import READ_FIRST, Connection, Owed, Refusal
from evenq.errors import EvenqError
from evenq.protocol.codes import ResponseCode, name_of
from evenq.protocol.command import Command

__all__ = ["DeferredReplies"]

log = logging.getLogger(__name__)


class DeferredReplies:
    """The answers of one family of handlers that are still to come."""

    def __init__(self) -> None:
        # a task that nobody holds may be collected before it is done
        self._tasks: set[asyncio.Task[None]] = set()
        self._owed = Owed()

    def answer(self, request: Command, connection: Connection, reply: Coroutine[Any, Any, Command | None]) -> None:
        """Send what ``reply`` gives, or why it fails. If it gives None, the answer comes from elsewhere.

        A client that waits for many answers already, or does not read those it has, is refused.
        """
        try:
            self._owed.check(connection)
        except Refusal:
            reply.close()
            raise
        self._owed.begin(connection)
        task = asyncio.get_running_loop().create_task(_send(request, connection, reply))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(done, connection))

    def _end(self, task: asyncio.Task[None], connection: Connection) -> None:
        self._tasks.discard(task)
        self._owed.end(connection)


async def _send(request: Command, connection: Connection, reply: Coroutine[Any, Any, Command | None]) -> None:
    try:
        answer = await reply
        if answer is not None:
            if connection.is_slow and answer.body:
                raise Refusal(ResponseCode.SYSTEM_BUSY, READ_FIRST)
            connection.send(answer)
    except Refusal as refusal:
        connection.send(request.reply(refusal.code, remark=refusal.remark))
    except EvenqError as error:
        connection.send(request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error)))
    except Exception as error:
        log.exception("%s of %s failed", name_of(request.code), connection.address)
        connection.send(request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}"))
