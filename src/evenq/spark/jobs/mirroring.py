"""How messages of one topic become messages of another: where each goes, and what it tells of where it was. Pure.

A copy has everything that its producer gave the message, and two properties more::

    EVENQ_SOURCE    orders:broker-a:3:1234      topic, broker, queue and offset of the message that it is a copy of
    EVENQ_BORN      1700000000000               when that was born; RocketMQ dates a copy anew
"""

from __future__ import annotations

from collections.abc import Sequence

from evenq.errors import ArgumentError
from evenq.model import MessageQueue, Property

__all__ = ["BORN", "ORDERED", "SELECTORS", "SOURCE", "check_selector", "queue_map", "selection", "source_text"]

SOURCE = "EVENQ_SOURCE"
BORN = "EVENQ_BORN"

# Those that keep the order of a queue, or of a key, and those that do not.
ORDERED = ("same", "hash")
SELECTORS = (*ORDERED, "round_robin", "random")


def check_selector(selector: str, ordered: bool) -> None:
    """Refuse what there is not, and what does not keep order where order is asked for."""
    if selector not in SELECTORS:
        raise ArgumentError("selector", selector, f"give {' or '.join(SELECTORS)}")
    if ordered and selector not in ORDERED:
        raise ArgumentError(
            "selector",
            selector,
            "messages of a key would come to several queues, which are consumed in any order: give same or hash",
        )


def queue_map(source: Sequence[MessageQueue], target: Sequence[MessageQueue]) -> dict[MessageQueue, MessageQueue]:
    """Where the messages of each queue go, all of them to one queue, with the queues of the target spread evenly.

    The same number in the order of all queues, modulo: topics that are alike have the same queues.

    >>> a, b = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
    >>> queue_map([a, b], [b]) == {a: b, b: b}
    True
    """
    places = sorted(target)
    return {queue: places[at % len(places)] for at, queue in enumerate(sorted(source))}


def source_text(queue: MessageQueue, name: str = "") -> str:
    """What the property SOURCE of all messages of a queue begins with, before the colon and the offset.

    >>> source_text(MessageQueue("orders", "broker-a", 3), name="berlin")
    'berlin/orders:broker-a:3'
    """
    return f"{name and name + '/'}{queue.topic}:{queue.broker}:{queue.queue_id}"


def selection(selector: str, places: dict[MessageQueue, MessageQueue], name: str = "") -> list[str]:
    """What to select of a read topic, with its properties, so that the sink writes copies.

    ``places`` is what :func:`queue_map` gives; a queue that is not in it yet goes by its number.
    """
    chosen = ["value", "unique_key", f"{_properties(name)} as properties"]
    if selector in ORDERED:
        place = _place(places)
        if selector == "hash":
            # a key decides where there is one
            key = f"coalesce(properties['{Property.SHARDING_KEY}'], keys)"
            place = f"if(coalesce({key}, '') = '', {place}, null)"
            chosen += ["keys", f"properties['{Property.SHARDING_KEY}'] as sharding_key"]
        chosen += [f"({place}).broker as broker", f"({place}).queue_id as queue_id"]
    return chosen


def _properties(name: str) -> str:
    """The properties of a copy: those of a copy of a copy tell of the nearer one."""
    prefix = [quoted(f"{name}/")] if name else []
    parts = [*prefix, "topic", "':'", "broker", "':'", "cast(queue_id as string)", "':'", "cast(offset as string)"]
    own = f"map('{SOURCE}', concat({', '.join(parts)}), '{BORN}', cast(unix_millis(born_timestamp) as string))"
    others = f"map_filter(properties, (name, text) -> name not in ('{SOURCE}', '{BORN}'))"
    return f"map_concat({others}, {own})"


def _place(places: dict[MessageQueue, MessageQueue]) -> str:
    known = ", ".join(
        f"{quoted(f'{queue.broker}:{queue.queue_id}')}, {_struct(place)}" for queue, place in sorted(places.items())
    )
    targets = ", ".join(_struct(place) for place in sorted(set(places.values())))
    return (
        f"coalesce(try_element_at(map({known}), concat(broker, ':', cast(queue_id as string))), "
        f"element_at(array({targets}), cast(queue_id % {len(set(places.values()))} as int) + 1))"
    )


def _struct(queue: MessageQueue) -> str:
    return f"named_struct('broker', {quoted(queue.broker)}, 'queue_id', {queue.queue_id})"


def quoted(text: str) -> str:
    """A text in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
