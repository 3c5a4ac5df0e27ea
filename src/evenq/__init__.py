"""RocketMQ's load balancing, whole, in Python.

>>> import evenq
>>> evenq.Message("orders", b"...", tags="paid", keys=["o-1"]).tags
'paid'

The sync surface is here, the async one in :mod:`evenq.aio`, the pure balancing in :mod:`evenq.balance`, the embedded
broker for tests in :mod:`evenq.testing`. ``spark.read.format("rocketmq")`` needs no import at all.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from evenq._version import __version__
from evenq.balance import HashSelector, MachineRoomSelector, RandomSelector
from evenq.client.acl import Credentials
from evenq.client.dispatch import Retry
from evenq.client.settings import FlowControl, Intervals, Timeouts
from evenq.client.sync import Admin, LitePullConsumer, Producer, PushConsumer
from evenq.client.tls import Tls
from evenq.errors import (
    ArgumentError,
    ConnectError,
    EvenqError,
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
    SendTimeout,
    StateError,
    TopicNotFound,
)
from evenq.model import (
    Message,
    MessageModel,
    MessageQueue,
    MessageView,
    SendResult,
    SendStatus,
    TransactionResult,
    TransactionState,
)

if TYPE_CHECKING:
    from evenq import aio, balance, protocol, testing

__all__ = [
    "Admin",
    "ArgumentError",
    "ConnectError",
    "Credentials",
    "EvenqError",
    "FlowControl",
    "HashSelector",
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
    "SendFailed",
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

# Loaded on first use, so that `import evenq` stays quick.
_ON_USE = frozenset({"aio", "balance", "protocol", "testing"})


def __getattr__(name: str) -> ModuleType:
    if name in _ON_USE:
        return importlib.import_module(f"evenq.{name}")
    raise AttributeError(f"module 'evenq' has no attribute {name!r}")
