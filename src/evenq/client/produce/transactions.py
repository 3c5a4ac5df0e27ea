"""Transactions: a half message that nobody sees, the caller's own work, then its outcome, told or asked for.

::

    send half message ──> stored ──> execute ──> COMMIT    the message becomes visible
                            │           ├──────> ROLLBACK  it never does
                            │           └──────> UNKNOWN   (or the process died): the broker asks later
                            └── with less safety than asked for: rolled back without executing
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from evenq.client.calling import call
from evenq.client.net.session import Session
from evenq.client.produce.outgoing import Packer
from evenq.client.produce.sender import Sender
from evenq.errors import ArgumentError, ProtocolError, RemoteError
from evenq.model import Message, Property, SendResult, TransactionResult, TransactionState
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import CheckTransaction, EndTransaction
from evenq.protocol.ids import parse_message_id
from evenq.protocol.names import without_namespace
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView

__all__ = ["Check", "Ended", "Execute", "Transactions", "transaction_id"]

log = logging.getLogger(__name__)

Execute: TypeAlias = Callable[[Message, str], TransactionState | Awaitable[TransactionState]]
"""The caller's own work: gets the message and the transaction's id, gives what became of it."""

Check: TypeAlias = Callable[[MessageView], TransactionState | Awaitable[TransactionState]]
"""Finds out what became of the work of a half message, maybe one of a process that is gone."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a transaction: what it was about, where its half message is, and what became of it."""

    topic: str
    tags: str | None
    keys: Sequence[str]
    msg_id: str
    transaction_id: str
    broker: str | None = None
    address: str
    half_offset: int
    log_offset: int
    state: TransactionState
    from_check: bool


class Transactions:
    """The transactions of one producer. ``observer`` may be set, and hears how each one ended."""

    def __init__(self, session: Session, sender: Sender, packer: Packer, group: str, check: Check | None) -> None:
        self._session = session
        self._sender = sender
        self._packer = packer
        self._group = group
        self._check = check
        self.observer: Callable[[Ended], None] | None = None
        if check is not None:
            session.on(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    async def begin(self, message: Message, seconds: float) -> SendResult:
        """Store the half message."""
        if self._check is None:
            raise ArgumentError(
                "check", None, "make the producer with check=…: a broker asks it where the outcome was not told"
            )
        if message.delay_level or message.deliver_at is not None:
            raise ArgumentError("message", message.topic, "a message of a transaction cannot be delayed")
        more = {Property.HALF: "true", Property.PRODUCER_GROUP: self._group}
        return await self._sender.send(self._packer.message(message, more, sys_flag=int(SysFlag.PREPARED)), seconds)

    async def end(self, message: Message, half: SendResult, state: TransactionState) -> TransactionResult:
        """Tell the broker the outcome. If that fails it asks, so nothing is lost but time."""
        if not isinstance(state, TransactionState):
            raise ArgumentError("execute", state, "it must return a TransactionState")
        route = await self._sender.route(message.topic)
        await self._tell(
            Ended(
                topic=message.topic,
                tags=message.tags,
                keys=message.keys,
                msg_id=half.msg_id,
                transaction_id=transaction_id(half),
                broker=half.queue.broker,
                address=route.address(half.queue.broker),
                half_offset=half.offset,
                log_offset=parse_message_id(half.offset_msg_id)[1],
                state=state,
                from_check=False,
            )
        )
        fields = {name: getattr(half, name) for name in half.__struct_fields__}
        return TransactionResult(**fields, state=state)

    async def _asked(self, command: Command) -> None:
        """A broker asks, because it was not told. Nobody waits for an answer: the outcome is a request of its own."""
        header = CheckTransaction.from_ext(command.ext)
        found = decode_messages(command.body)
        if len(found) != 1:
            raise ProtocolError(f"a question about a transaction with {len(found)} messages: it should have 1")
        message = found[0]
        topic = without_namespace(self._session.namespace, message.topic)
        state = await self._check_one(msgspec.structs.replace(message, topic=topic))
        unique_key = message.unique_key or message.msg_id
        await self._tell(
            Ended(
                topic=topic,
                tags=message.tags,
                keys=message.keys,
                msg_id=unique_key,
                transaction_id=header.transaction_id or unique_key,
                broker=header.broker_name,
                # behind a proxy the host that stored it may be out of reach
                address=self._session.routes.masters().get(header.broker_name or "", message.store_host),
                half_offset=header.tran_state_table_offset,
                log_offset=header.commit_log_offset,
                state=state,
                from_check=True,
            )
        )

    async def _check_one(self, message: MessageView) -> TransactionState:
        assert self._check is not None
        try:
            return TransactionState(await call(self._check, message))
        except Exception:
            # whatever a check raises means the same: not known yet
            log.exception("the check of transaction %s failed", message.unique_key)
            return TransactionState.UNKNOWN

    async def _tell(self, ended: Ended) -> None:
        if self.observer is not None:
            self.observer(ended)
        if ended.state is TransactionState.UNKNOWN:
            log.info("transaction %s in topic %s is open: the broker will ask", ended.msg_id, ended.topic)
            return
        header = EndTransaction(
            broker_name=ended.broker,
            topic=self._session.wire_name(ended.topic),
            producer_group=self._group,
            tran_state_table_offset=ended.half_offset,
            commit_log_offset=ended.log_offset,
            commit_or_rollback=ended.state.value,
            from_transaction_check=ended.from_check,
            msg_id=ended.msg_id,
            transaction_id=ended.transaction_id,
        )
        try:
            await self._session.remote.ask(ended.address, RequestCode.END_TRANSACTION, header)
        except RemoteError as error:
            log.warning("%s of transaction %s was not told: %s", ended.state.name, ended.msg_id, error)


def transaction_id(half: SendResult) -> str:
    """How the transaction of a half message is called."""
    return half.transaction_id or half.msg_id
