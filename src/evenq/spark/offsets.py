"""Offsets by queue, and the offset values of a streaming query: JSON by topic, broker and queue id.

An offset value names, for every queue, where its micro-batch begins and where it ends. A batch that is run again reads
the same messages then, whatever happened to the topic or the query in between::

    {"orders": {"broker-a": {"0": {"from": 10, "to": 25}, "1": {"from": 7, "to": 7}}}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from evenq.client.read.ranges import QueueRange
from evenq.errors import ProtocolError
from evenq.model import MessageQueue

__all__ = ["Progress", "by_queue", "by_topic", "each_queue"]

T = TypeVar("T")


def by_topic(values: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    """Topic → broker → queue id → value, in the order of the queues: equal values are equal JSON.

    >>> by_topic({MessageQueue("t", "b", 1): 5, MessageQueue("t", "b", 0): 7})
    {'t': {'b': {'0': 7, '1': 5}}}
    """
    nested: dict[str, dict[str, dict[str, T]]] = {}
    for queue in sorted(values):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = values[queue]
    return nested


def by_queue(nested: object) -> dict[MessageQueue, Any]:
    """The other way round. Anything of another shape is a ValueError that names the place.

    >>> by_queue({"t": {"b": {"0": 7}}})
    {MessageQueue(topic='t', broker='b', queue_id=0): 7}
    """
    return {
        MessageQueue(topic, broker, _queue_id(number, f"{topic}.{broker}")): value
        for topic, brokers in _object(nested, "the whole").items()
        for broker, queues in _object(brokers, topic).items()
        for number, value in _object(queues, f"{topic}.{broker}").items()
    }


def each_queue(nested: object) -> Iterator[MessageQueue]:
    """The queues of topic → broker → list of queue ids, checked alike.

    >>> list(each_queue({"t": {"b": [0, 3]}}))[1]
    MessageQueue(topic='t', broker='b', queue_id=3)
    """
    for topic, brokers in _object(nested, "the whole").items():
        for broker, numbers in _object(brokers, topic).items():
            if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError(f"{topic}.{broker} is {numbers!r} where a list of queue numbers must be")
            yield from (MessageQueue(topic, broker, number) for number in numbers)


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is {value!r} where an object must be")
    return value


def _queue_id(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{place} has the key {text!r} where the number of a queue must be")
    return int(text)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one micro-batch reads: for every queue that the query knows, its offsets (none, where nothing is new)."""

    ranges: tuple[QueueRange, ...]

    @classmethod
    def at(cls, offsets: Mapping[MessageQueue, int]) -> Progress:
        """Before the first batch: nothing read, these offsets next."""
        return cls(tuple(QueueRange(queue, offset, offset) for queue, offset in sorted(offsets.items())))

    @property
    def reached(self) -> dict[MessageQueue, int]:
        """The next offset of each queue."""
        return {part.queue: part.stop for part in self.ranges}

    @property
    def moved(self) -> dict[MessageQueue, int]:
        """The next offset of each queue of which this batch reads something."""
        return {part.queue: part.stop for part in self.ranges if part}

    def to_json(self) -> dict[str, Any]:
        return by_topic({part.queue: {"from": part.start, "to": part.stop} for part in self.ranges})

    @classmethod
    def from_json(cls, value: object) -> Progress:
        """Read a checkpoint.

        >>> Progress.from_json({"t": {"b": {"0": {"from": 1, "to": 3}}}}).reached
        {MessageQueue(topic='t', broker='b', queue_id=0): 3}
        """
        try:
            found = sorted(by_queue(value).items())
            return cls(tuple(QueueRange(queue, int(part["from"]), int(part["to"])) for queue, part in found))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"the checkpoint has an offset that evenq did not write ({error}): {value!r}. "
                "Use a checkpoint folder of this source, or an empty one"
            ) from None
