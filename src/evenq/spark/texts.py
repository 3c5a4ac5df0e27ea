"""What the text of an option is turned into. Each raises ValueError with what is wrong, in words that end "give …"."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from evenq.client.net.address import name_servers
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING, parse_tags
from evenq.protocol.names import group_error, topic_error
from evenq.spark.bounds import NUMBERS, Place
from evenq.spark.offsets import by_queue, each_queue

__all__ = [
    "assigned",
    "count",
    "group",
    "milliseconds",
    "names",
    "offsets",
    "one_of",
    "pattern",
    "seconds",
    "servers",
    "some",
    "sql",
    "strategy",
    "switch",
    "tags",
    "times",
    "topic",
    "topics",
]


def some(text: str) -> str:
    """Any text that is not blank."""
    if not text.strip():
        raise ValueError("give a value, or leave the option out")
    return text


def servers(text: str) -> str:
    return ";".join(name_servers(text))


def topic(text: str) -> str:
    if error := topic_error(text):
        raise ValueError(f"{error}: give the name of a topic")
    return text


def names(text: str) -> tuple[str, ...]:
    """
    >>> names("orders, returns,orders")
    ('orders', 'returns')
    """
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError("give a name, or several with commas between")
    return found


def topics(text: str) -> tuple[str, ...]:
    return tuple(map(topic, names(text)))


def pattern(text: str) -> str:
    try:
        re.compile(some(text))
    except re.error as error:
        raise ValueError(f"{error}: give a regular expression that matches whole names of topics") from None
    return text


def assigned(text: str) -> tuple[MessageQueue, ...]:
    """
    >>> assigned('{"orders": {"broker-a": [1, 0]}}')[0]
    MessageQueue(topic='orders', broker='broker-a', queue_id=0)
    """
    shape = 'give JSON such as {"topic": {"broker": [0, 1]}}'
    try:
        found = sorted(set(each_queue(json.loads(text))))
    except ValueError as error:
        raise ValueError(f"{shape} ({error})") from None
    if not found:
        raise ValueError(shape)
    return tuple(found)


def offsets(text: str) -> Place | dict[MessageQueue, int]:
    """A place in every queue by its name, or an offset for each queue."""
    choices = 'give earliest, latest, group, or JSON such as {"topic": {"broker": {"0": 23, "1": -2}}}'
    if (word := text.strip().upper()) in Place.__members__:
        return Place[word]
    return _numbers(text, choices, min(NUMBERS), "0 and above, -1 latest, -2 earliest")


def times(text: str) -> dict[MessageQueue, int]:
    """A time for each queue, in milliseconds since 1970."""
    choices = 'give JSON such as {"topic": {"broker": {"0": 1700000000000}}}'
    return _numbers(text, choices, 0, "milliseconds since 1970")


def _numbers(text: str, choices: str, least: int, meaning: str) -> dict[MessageQueue, int]:
    try:
        found: dict[MessageQueue, Any] = by_queue(json.loads(text))
    except ValueError as error:
        raise ValueError(f"{choices} ({error})") from None
    for queue, number in found.items():
        if type(number) is not int or number < least:
            raise ValueError(f"{choices}; that of {queue} is {number!r}: {meaning}")
    if not found:
        raise ValueError(choices)
    return found


def milliseconds(text: str) -> int:
    """A time: milliseconds since 1970, or ISO 8601 with a time zone.

    >>> milliseconds("1700000000000") == milliseconds("2023-11-14T22:13:20Z")
    True
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise ValueError("give milliseconds since 1970, or a time with its zone such as 2024-05-01T12:00:00Z")
    return round(when.timestamp() * 1000)


def tags(text: str) -> str:
    parse_tags(text)
    return text.strip() or EVERYTHING


def sql(text: str) -> str:
    if not text.strip():
        raise ValueError("give a condition on properties, such as total > 10 AND TAGS = 'paid'")
    return text


def group(text: str) -> str:
    if error := group_error(text):
        raise ValueError(f"{error}: give the name of a group")
    return text


def strategy(text: str) -> str:
    # few options need that much
    from evenq.balance import as_strategy
    from evenq.client.group.shares import STICKY

    if text != STICKY:
        as_strategy(text)
    return text


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise ValueError("give a whole number above 0")
    return int(text)


def one_of(*words: str) -> Callable[[str], str]:
    """One of some words, whatever its case."""

    def read(text: str) -> str:
        if (word := text.strip().lower()) not in words:
            raise ValueError(f"give {' or '.join(words)}")
        return word

    return read


def switch(text: str) -> bool:
    return one_of("true", "false")(text) == "true"


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """
    >>> seconds("500ms"), seconds("2m")
    (0.5, 120.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", text.strip())
    if not found or not float(found[1]):
        raise ValueError("give a time with its unit, such as 500ms, 10s or 2m")
    return float(found[1]) * _UNITS[found[2]]
