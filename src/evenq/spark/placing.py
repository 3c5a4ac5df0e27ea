"""Which queue each row goes to: by its number or its contents, never by chance alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenq.balance import HashSelector
from evenq.balance.rooms import room_of
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue
from evenq.spark.marks import Origin
from evenq.spark.rows import numbered
from evenq.spark.sinkoptions import WriteOptions

__all__ = ["Placing", "topics_of"]

# What decides where a row goes, beside its number.
_COLUMNS = ("topic", "queue_id", "broker", "sharding_key", "keys")
# The first of these names a queue, so that rows no longer take turns over all of them.
_BINDING = frozenset({"topic", "queue_id", "sharding_key"})

Positions = NDArray[np.int64]


def topics_of(batch: pa.RecordBatch, options: WriteOptions) -> set[str]:
    """The topics that the rows of a batch go to."""
    if "topic" not in batch.schema.names:
        return set() if options.topic is None else {options.topic}
    found = set(pc.unique(batch.column("topic")).to_pylist())
    if None in found:
        if options.topic is None:
            raise ArgumentError("topic", None, "a row has no topic: fill the column, or give the option topic")
        found = found - {None} | {options.topic}
    return found


class Placing:
    """Places the rows of one task. A row that is written again goes where it went, as long as the queues are the same.

    Even the selector ``random`` draws the same queues again.
    """

    def __init__(self, options: WriteOptions, origin: Origin) -> None:
        self._options = options
        self._origin = origin
        self._random = Random(origin.prefix)

    def place(
        self, batch: pa.RecordBatch, first: int, queues: Mapping[str, Sequence[MessageQueue]]
    ) -> dict[MessageQueue, Positions]:
        """The positions of the rows that go to each queue, where ``first`` is the number of the first row.

        ``queues`` are the writable ones of every topic in the batch.
        """
        options, count = self._options, len(batch)
        origin, numbers = numbered(self._origin, batch, first)
        turns = numbers.to_numpy() + origin.partition
        if options.selector == "round_robin" and not _BINDING & set(batch.schema.names):
            own = queues[options.topic or ""]
            if origin is self._origin:
                step = len(own)
                return {own[turns[at] % step]: np.arange(at, count, step) for at in range(min(step, count))}
            return {own[at]: np.flatnonzero(turns % len(own) == at) for at in np.unique(turns % len(own)).tolist()}
        found: dict[MessageQueue, list[int]] = {}
        for at, (row, turn) in enumerate(zip(_rows(batch), turns.tolist(), strict=True)):
            topic = row.get("topic") or options.topic or ""
            chance = self._random if origin is self._origin else Random(f"{origin.prefix}{turn}")
            found.setdefault(self._place(queues[topic], row, turn, chance), []).append(at)
        return {queue: np.array(positions) for queue, positions in found.items()}

    def _place(self, queues: Sequence[MessageQueue], row: Mapping[str, Any], turn: int, chance: Random) -> MessageQueue:
        if row.get("queue_id") is not None:
            queues = _named(queues, row["queue_id"], row.get("broker"))
            if len(queues) == 1:
                return queues[0]
        if row.get("sharding_key") is not None:
            return _by_hash(queues, row["sharding_key"])
        match self._options.selector:
            case "hash":
                return _by_hash(queues, _key(row.get("keys")))
            case "random":
                return queues[chance.randrange(len(queues))]
            case "machine_room":
                queues = _near(queues, self._options.rooms)
        return queues[turn % len(queues)]


def _rows(batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    names = [name for name in _COLUMNS if name in batch.schema.names]
    if not names:
        return ({} for _ in range(len(batch)))
    columns = (batch.column(name).to_pylist() for name in names)
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _named(queues: Sequence[MessageQueue], queue_id: int, broker: str | None) -> Sequence[MessageQueue]:
    """The queues of that number: one, or one of each broker."""
    found = [queue for queue in queues if queue.queue_id == queue_id and broker in (None, queue.broker)]
    if not found:
        where = f"on broker {broker}" if broker else "on any broker"
        raise ArgumentError("queue_id", queue_id, f"topic {queues[0].topic} has no such queue to write to {where}")
    return found


_hash_selector = HashSelector()
_any_message = Message("any", b"")


def _by_hash(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    return _hash_selector.select(queues, _any_message, key)


def _key(keys: str | Sequence[str] | None) -> str:
    if not keys:
        raise ArgumentError("keys", keys, "selector=hash needs keys in every row that has no sharding_key")
    return keys if isinstance(keys, str) else " ".join(keys)


def _near(queues: Sequence[MessageQueue], rooms: Sequence[str]) -> Sequence[MessageQueue]:
    """The queues in some rooms; all of them where there are none."""
    return [queue for queue in queues if room_of(queue.broker) in rooms] or queues
