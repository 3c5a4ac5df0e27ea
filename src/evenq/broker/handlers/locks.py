"""Locks: a member takes queues for itself, for a minute at a time.

Behaviour
    The answer names the queues that are the client's now; the others belong to somebody else.

Codes
    LOCK_BATCH_MQ, UNLOCK_BATCH_MQ

Not implemented
    Locks over a quorum of replicas: there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.server import Connection, Handler, Pieces
from evenq.protocol import bodies
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["LockHandlers"]


class LockHandlers:
    """The handlers of locks."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    def _lock(self, request: Command, connection: Connection) -> Pieces:
        wanted = bodies.LockRequest.decode(request.body)
        held = self._broker.locks.lock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
        body = yield from bodies.LockResponse(queues=held).encode_pieces()
        return request.reply(body=body)

    def _unlock(self, request: Command, connection: Connection) -> Command:
        given = bodies.LockRequest.decode(request.body)
        self._broker.locks.unlock(given.consumer_group, given.client_id, given.mq_set)
        return request.reply()
