"""The options of ``format("rocketmq")``: strings in, one checked value out, once.

Every option is a row of a table; the names are those of Spark's Kafka connector where it has the same thing.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from evenq.client.address import name_servers
from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.protocol.filters import EVERYTHING, parse_tags
from evenq.spark.offsets import by_queue

__all__ = ["DEFAULT_GROUP", "OPTIONS", "Bound", "Edge", "Option", "ReadOptions", "read_options"]

# The name that pulls carry where the query has no group of its own.
DEFAULT_GROUP = "evenq-spark"


class Edge(Enum):
    """An end of a queue, and the number that stands for it in JSON."""

    EARLIEST = -2
    LATEST = -1


# Where reading begins or ends: at an end of every queue, or at an offset for each (or the number of an Edge).
Bound = Edge | Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a query reads, and how."""

    namesrv: str
    topics: tuple[str, ...]
    starting: Bound | None
    ending: Bound | None
    tags: str
    group: str | None
    min_partitions: int | None
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    include_properties: bool
    connect_timeout: float
    request_timeout: float
    pull_timeout: float

    @property
    def pull_group(self) -> str:
        return self.group or DEFAULT_GROUP

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(connect=self.connect_timeout, request=self.request_timeout, pull=self.pull_timeout)

    @property
    def wanted_tags(self) -> frozenset[str]:
        return parse_tags(self.tags)

    def batch_bounds(self) -> tuple[Bound, Bound]:
        """Where a batch query begins and ends: by default at the earliest and the latest offsets."""
        starting, ending = self.starting or Edge.EARLIEST, self.ending or Edge.LATEST
        _refuse_edge("startingOffsets", starting, Edge.LATEST, "a batch query would read nothing")
        _refuse_edge("endingOffsets", ending, Edge.EARLIEST, "a query would end before it begins")
        return starting, ending

    def stream_start(self) -> Bound:
        """Where a streaming query without a checkpoint begins: by default at the latest offsets."""
        if self.ending is not None:
            raise ArgumentError("endingOffsets", _shown(self.ending), "a stream has no end: leave it out, or use read")
        return self.starting or Edge.LATEST


def _refuse_edge(option: str, bound: Bound, edge: Edge, reason: str) -> None:
    if bound is edge or (isinstance(bound, Mapping) and edge.value in bound.values()):
        raise ArgumentError(option, _shown(bound), f"{reason}: {edge.name.lower()} ({edge.value}) is not possible here")


def _shown(bound: Bound) -> object:
    return bound.name.lower() if isinstance(bound, Edge) else {str(queue): offset for queue, offset in bound.items()}


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check everything that was given, and fill in the rest.

    >>> read_options({"NAMESRV": "127.0.0.1:9876", "subscribe": "orders, returns"}).topics
    ('orders', 'returns')
    >>> read_options({"namesrv": "127.0.0.1:9876", "subscribe": "orders", "startingOffset": "earliest"})
    Traceback (most recent call last):
    ...
    evenq.errors.ArgumentError: startingOffset='earliest': there is no such option; did you mean startingOffsets?
    """
    by_name = {row.name.lower(): row for row in OPTIONS}
    for name, text in given.items():
        if name.lower() not in by_name:
            raise ArgumentError(name, text, f"there is no such option; {_way_out(name)}")
    texts = {name.lower(): text for name, text in given.items()}
    return ReadOptions(**{row.field: row.value(texts.get(name)) for name, row in by_name.items()})


def _way_out(name: str) -> str:
    if elsewhere := _ELSEWHERE.get(name.lower()):
        return elsewhere
    names = {row.name.lower(): row.name for row in OPTIONS}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(sorted(names.values()))}"


# Names that people bring from elsewhere.
_ELSEWHERE = {
    "path": "load() takes no path: name the topic with option subscribe",
    "kafka.bootstrap.servers": "RocketMQ's is namesrv, the name server's host:port",
    "topic": "did you mean subscribe?",
}


# What a text is turned into. Each raises ValueError with what is wrong, in words that end "give …".


def _servers(text: str) -> str:
    return ";".join(name_servers(text))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise ValueError("give the name of a topic, or several with commas between")
    return topics


def _bound(text: str) -> Bound:
    choices = 'give earliest, latest, or JSON such as {"topic": {"broker": {"0": 23, "1": -2}}}'
    if (word := text.strip().upper()) in Edge.__members__:
        return Edge[word]
    try:
        offsets = by_queue(json.loads(text))
    except ValueError as error:
        raise ValueError(f"{choices} ({error})") from None
    for queue, offset in offsets.items():
        if type(offset) is not int or offset < Edge.EARLIEST.value:
            raise ValueError(f"{choices}; the offset of {queue} is {offset!r}: 0 and above, -1 latest, -2 earliest")
    if not offsets:
        raise ValueError(choices)
    return offsets


def _tags(text: str) -> str:
    parse_tags(text)
    return text.strip() or EVERYTHING


def _group(text: str) -> str:
    if not re.fullmatch(r"[%|\w-]{1,255}", text, re.ASCII):
        raise ValueError("give up to 255 letters, digits, '_', '-', '%' or '|'")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise ValueError("give a whole number above 0")
    return int(text)


def _switch(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise ValueError("give true or false") from None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)", text.strip())
    if not found or not float(found[1]):
        raise ValueError("give a time with its unit, such as 500ms, 10s or 2m")
    return float(found[1]) * _UNITS[found[2]]


_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name for users, its field in ReadOptions, how its text is read, and what holds without it."""

    name: str
    field: str
    read: Callable[[str], Any]
    default: Any = None
    about: str = ""

    def value(self, text: str | None) -> Any:
        if text is None:
            if self.default is _REQUIRED:
                raise ArgumentError(self.name, None, f"this option is needed: {self.about}")
            return self.default
        try:
            return self.read(text)
        except ArgumentError as error:
            raise ArgumentError(self.name, text, error.remedy) from None
        except ValueError as error:
            raise ArgumentError(self.name, text, str(error)) from None


OPTIONS = (
    Option("namesrv", "namesrv", _servers, _REQUIRED, "the name servers, host:port, several with ';' between"),
    Option("subscribe", "topics", _topics, _REQUIRED, "the topics to read, with commas between"),
    Option("startingOffsets", "starting", _bound, None, "where to begin: earliest, latest, or JSON"),
    Option("endingOffsets", "ending", _bound, None, "where a batch query ends: latest, or JSON"),
    Option("tags", "tags", _tags, EVERYTHING, "only messages with these tags, such as paid || refunded"),
    Option("group", "group", _group, None, "the consumer group that shows the query's progress"),
    Option("minPartitions", "min_partitions", _count, None, "make at least so many tasks of a batch"),
    Option("maxOffsetsPerTrigger", "max_offsets_per_trigger", _count, None, "read at most so many in a micro-batch"),
    Option("failOnDataLoss", "fail_on_data_loss", _switch, True, "whether messages that are gone fail the query"),
    Option("includeProperties", "include_properties", _switch, False, "whether there is a column properties"),
    Option("connectTimeout", "connect_timeout", _seconds, Timeouts().connect, "to connect to a server"),
    Option("requestTimeout", "request_timeout", _seconds, Timeouts().request, "to ask for routes and offsets"),
    Option("pullTimeout", "pull_timeout", _seconds, Timeouts().pull, "to get messages"),
)
