"""Stores under a clock that tests move, and the two ways in which a broker ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from evenq.broker.scheduling.parked import ParkedMessages
from evenq.broker.store.levels import DEFAULT_LEVELS, DelayLevels
from evenq.broker.store.store import NewMessage, Store, StoredMessage
from evenq.protocol.properties import decode_properties, encode_properties

__all__ = ["Hand", "OpenStore", "message"]

HOST = "127.0.0.1:10911"


class Hand:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    @property
    def ms(self) -> int:
        return int(self.now * 1000)


class OpenStore:
    """A store with what parks messages in it, which can be opened again after a clean end or a kill."""

    def __init__(self, directory: Path, clock: Callable[[], float], levels: DelayLevels = DEFAULT_LEVELS) -> None:
        self.directory = directory
        self.clock = clock
        self.levels = levels
        self.open()

    def open(self) -> None:
        self.store = Store(
            self.directory, HOST, clock=self.clock, log_file_size=1 << 18, queue_file_units=256, levels=self.levels
        )
        self.parked = ParkedMessages(self.store, self.clock)

    def commit(self) -> None:
        self.store.commit()

    def put(self, incoming: NewMessage) -> StoredMessage:
        stored = self.parked.store_or_park(incoming, decode_properties(incoming.properties))
        self.store.commit()
        return stored

    def checkpoint(self) -> None:
        """What a broker does twice a second."""
        self.store.checkpoint()()

    def end(self) -> None:
        self.store.close()

    def kill(self) -> None:
        """End as SIGKILL does: go on with what the system has now, in a copy of it."""
        copy = self.directory.with_name(f"{self.directory.name}+")
        shutil.copytree(self.directory, copy)
        self.store.close()
        self.directory = copy


def message(
    body: bytes,
    properties: Mapping[str, str] | None = None,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    tags: str | None = None,
    **more: str,
) -> NewMessage:
    """A message with a key, and with what else is given as properties."""
    wire = encode_properties({"KEYS": "k", **({"TAGS": tags} if tags else {}), **(properties or {}), **more})
    return NewMessage(topic, queue_id, body, wire, tags, 1_699_999_999_000, "10.0.0.7:4711")
