"""Transactions: producers say what became of their half messages.

Behaviour
    A half message is stored by a send (see :mod:`evenq.broker.handlers.send`). Committed, it goes to its real queue, or
    where it waits if it is delayed; rolled back, it is gone. A producer that cannot say yet is asked later, as is one
    that does not speak up. Ending a half message twice does nothing the second time.

Codes
    END_TRANSACTION; CHECK_TRANSACTION_STATE is what producers are asked with

Not implemented
    Bringing half messages back that were given up (RESUME_CHECK_HALF_MESSAGE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.server import Connection, Handler
from evenq.model import TransactionState
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["TransactionHandlers"]


class TransactionHandlers:
    """The handler of the end of transactions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self._end}

    def _end(self, request: Command, connection: Connection) -> Command | None:
        header = headers.EndTransaction.from_ext(request.ext)
        if header.commit_or_rollback not in (TransactionState.COMMIT, TransactionState.ROLLBACK):
            return request.reply()
        self._broker.transactions.end(header)
        return self._broker.answer_when_durable(request.reply(), connection)
