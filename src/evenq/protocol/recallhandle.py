"""The handle by which a producer takes a timed message back: the broker gives it with its answer to the send."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, Self

__all__ = ["RecallHandle"]

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """Which message is meant: ``due`` is in the second in which it is delivered, in milliseconds.

    >>> handle = RecallHandle("orders", "broker-a", 1_700_000_005_001, "0A00")
    >>> handle.encode(), RecallHandle.decode(handle.encode()) == handle
    ('djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDUwMDEgMEEwMA==', True)
    """

    topic: str
    broker: str
    due: int
    unique_key: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(" ".join([_VERSION, *map(str, self)]).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a handle; a ValueError says what is wrong with it."""
        try:
            version, topic, broker, due, unique_key = base64.urlsafe_b64decode(text).decode().split(" ")[:5]
            handle = cls(topic, broker, int(due), unique_key)
        except (ValueError, binascii.Error):
            raise ValueError("it is not base64 of a version, topic, broker, time and id") from None
        if version != _VERSION:
            raise ValueError(f"it is of version {version!r}; only {_VERSION!r} is known")
        return handle
