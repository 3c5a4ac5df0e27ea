"""What a broker does with each request, one file per family; each opens with behaviour, codes and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.handlers.admin import AdminHandlers
from evenq.broker.handlers.groups import MemberHandlers
from evenq.broker.handlers.locks import LockHandlers
from evenq.broker.handlers.messages import MessageHandlers
from evenq.broker.handlers.offsets import OffsetHandlers
from evenq.broker.handlers.progress import ProgressHandlers
from evenq.broker.handlers.pull import PullHandlers
from evenq.broker.handlers.recalls import RecallHandlers
from evenq.broker.handlers.relays import RelayHandlers
from evenq.broker.handlers.replies import ReplyHandlers
from evenq.broker.handlers.resets import ResetHandlers
from evenq.broker.handlers.retries import SendBackHandlers
from evenq.broker.handlers.send import SendHandlers
from evenq.broker.handlers.topics import TopicHandlers
from evenq.broker.handlers.transactions import TransactionHandlers
from evenq.broker.server import Handler

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["dispatch_table"]

FAMILIES = (
    SendHandlers,
    SendBackHandlers,
    TransactionHandlers,
    ReplyHandlers,
    RecallHandlers,
    PullHandlers,
    MemberHandlers,
    OffsetHandlers,
    LockHandlers,
    TopicHandlers,
    AdminHandlers,
    ProgressHandlers,
    ResetHandlers,
    RelayHandlers,
    MessageHandlers,
)


def dispatch_table(broker: Broker) -> dict[int, Handler]:
    """The handler of each request code."""
    table: dict[int, Handler] = {}
    for family in FAMILIES:
        table.update(family(broker).handlers())
    return table
