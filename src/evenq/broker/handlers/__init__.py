"""What a broker does with each request, one file per family; each opens with behaviour, codes and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.handlers.admin import Administration
from evenq.broker.handlers.groups import Membership
from evenq.broker.handlers.locks import Locking
from evenq.broker.handlers.messages import Messages
from evenq.broker.handlers.offsets import Offsets
from evenq.broker.handlers.progress import Progress
from evenq.broker.handlers.pull import Pulling
from evenq.broker.handlers.recalls import Recalls
from evenq.broker.handlers.relays import Relays
from evenq.broker.handlers.replies import Replies
from evenq.broker.handlers.resets import Resets
from evenq.broker.handlers.retries import SendingBack
from evenq.broker.handlers.send import Sending
from evenq.broker.handlers.topics import TopicAdministration
from evenq.broker.handlers.transactions import Ending
from evenq.broker.server import Handler

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["dispatch_table"]

FAMILIES = (
    Sending,
    SendingBack,
    Ending,
    Replies,
    Recalls,
    Pulling,
    Membership,
    Offsets,
    Locking,
    TopicAdministration,
    Administration,
    Progress,
    Resets,
    Relays,
    Messages,
)


def dispatch_table(broker: Broker) -> dict[int, Handler]:
    """The handler of each request code."""
    table: dict[int, Handler] = {}
    for family in FAMILIES:
        table.update(family(broker).handlers())
    return table
