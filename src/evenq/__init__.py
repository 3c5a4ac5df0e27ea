"""A RocketMQ client, embedded broker and Spark connector in pure Python.

>>> import evenq
>>> evenq.Message("orders", b"...", tags="paid", keys=["o-1"]).tags
'paid'

The sync surface is here, the async one in :mod:`evenq.aio`, the pure balancing in :mod:`evenq.balance`, the embedded
broker for tests in :mod:`evenq.testing`. ``spark.read.format("rocketmq")`` needs no import at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from evenq._version import __version__
from evenq.errors import (
    ArgumentError,
    ConnectError,
    EvenqError,
    IncompleteAnswer,
    LocalError,
    NoPermission,
    NoReply,
    OffsetsLost,
    PartlySent,
    ProtocolError,
    RecordError,
    RefusedError,
    RemoteError,
    RequestTimeout,
    SendFailed,
    SendInterrupted,
    SendTimeout,
    StateError,
    TopicNotFound,
)
from evenq.model import (
    Message,
    MessageModel,
    MessageQueue,
    SendResult,
    SendStatus,
    TransactionResult,
    TransactionState,
)

if TYPE_CHECKING:
    from evenq import aio, balance, protocol, testing
    from evenq.balance import HashSelector, MachineRoomSelector, RandomSelector
    from evenq.client.consume.calls import ConsumeEvent
    from evenq.client.consume.dispatch import Retry
    from evenq.client.net.acl import Credentials
    from evenq.client.net.tls import Tls
    from evenq.client.produce.sendevents import SendEvent
    from evenq.client.settings import FlowControl, Intervals, Timeouts
    from evenq.client.sync.surface import Admin, LitePullConsumer, Producer, PushConsumer
    from evenq.protocol.view import MessageView

__all__ = [
    "Admin",
    "ArgumentError",
    "ConnectError",
    "ConsumeEvent",
    "Credentials",
    "EvenqError",
    "FlowControl",
    "HashSelector",
    "IncompleteAnswer",
    "Intervals",
    "LitePullConsumer",
    "LocalError",
    "MachineRoomSelector",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageView",
    "NoPermission",
    "NoReply",
    "OffsetsLost",
    "PartlySent",
    "Producer",
    "ProtocolError",
    "PushConsumer",
    "RandomSelector",
    "RecordError",
    "RefusedError",
    "RemoteError",
    "RequestTimeout",
    "Retry",
    "SendEvent",
    "SendFailed",
    "SendInterrupted",
    "SendResult",
    "SendStatus",
    "SendTimeout",
    "StateError",
    "Timeouts",
    "Tls",
    "TopicNotFound",
    "TransactionResult",
    "TransactionState",
    "__version__",
    "aio",
    "balance",
    "protocol",
    "testing",
]

# Where the names are that are loaded on first use, so that `import evenq` stays quick.
_HOMES = {
    "evenq.balance": ("HashSelector", "MachineRoomSelector", "RandomSelector"),
    "evenq.client.net.acl": ("Credentials",),
    "evenq.client.consume.calls": ("ConsumeEvent",),
    "evenq.client.consume.dispatch": ("Retry",),
    "evenq.client.produce.sendevents": ("SendEvent",),
    "evenq.client.settings": ("FlowControl", "Intervals", "Timeouts"),
    "evenq.client.sync.surface": ("Admin", "LitePullConsumer", "Producer", "PushConsumer"),
    "evenq.client.net.tls": ("Tls",),
    "evenq.protocol.view": ("MessageView",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = frozenset({"aio", "balance", "protocol", "testing"})

if not TYPE_CHECKING:  # a type checker must still see that a wrong name is wrong

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return importlib.import_module(f"evenq.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'evenq' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
        return value
