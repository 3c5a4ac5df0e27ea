"""The options of writing to ``format("rocketmq")``, and the columns that a frame may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from evenq.errors import ArgumentError
from evenq.spark import texts
from evenq.spark.connecting import CONNECTION, Connecting
from evenq.spark.marks import QUERY_DIGITS
from evenq.spark.options import DEFAULT_GROUP
from evenq.spark.table import Option, read_table

__all__ = ["COLUMNS", "WRITE_OPTIONS", "WriteOptions", "check_columns", "write_options"]

_WHOLE = ("int", "bigint", "smallint", "tinyint")

# The columns of a frame, and the types that each may have.
COLUMNS: dict[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "topic": ("string",),
    "keys": ("string", "array<string>"),
    "tags": ("string",),
    "sharding_key": ("string",),
    "properties": ("map<string,string>",),
    "delay_level": _WHOLE,
    "deliver_at": ("timestamp",),
    "broker": ("string",),
    "queue_id": _WHOLE,
    "row_number": _WHOLE,
    "unique_key": ("string",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where rows go, and how."""

    connecting: Connecting
    topic: str | None
    group: str
    selector: str
    rooms: tuple[str, ...]
    batch_bytes: int
    max_message_size: int
    rows_per_second: int | None
    # what marks name in a batch write; a stream has its own
    writer: str | None
    epoch: int | None


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check everything that was given, and fill in the rest.

    >>> write_options({"namesrv": "127.0.0.1:9876", "topic": "orders"}).selector
    'round_robin'
    """
    own = {name: text for name, text in given.items() if name.lower() not in _OF_SPARK}
    values = read_table(WRITE_OPTIONS, own, _ELSEWHERE)
    rooms = values["rooms"]
    if (values["selector"] == "machine_room") != bool(rooms):
        raise ArgumentError("rooms", rooms or None, "selector=machine_room and the rooms belong together: give both")
    values["rooms"] = rooms or ()
    if (values["writer"] is None) != (values["epoch"] is None):
        raise ArgumentError("epoch", values["epoch"], "writerId and epoch belong together: give both, or neither")
    connecting = Connecting.take(values, send=values.pop("send_timeout"))
    return WriteOptions(connecting=connecting, **values)


def check_columns(types: Mapping[str, str], options: WriteOptions) -> None:
    """See that the columns of a frame, with Spark's names of their types, can be written."""
    for name, kind in types.items():
        if name not in COLUMNS:
            raise ArgumentError("column", name, f"there is no such column to write; there are {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise ArgumentError(f"column {name}", kind, f"make it {' or '.join(COLUMNS[name])}")
    if "value" not in types:
        raise ArgumentError("columns", ", ".join(types), "one must be called value: the bodies of the messages")
    if "topic" not in types and options.topic is None:
        raise ArgumentError("topic", None, "say where to write: give the option topic, or a column topic")
    if "broker" in types and "queue_id" not in types:
        raise ArgumentError("column", "broker", "it counts with a column queue_id only: give that too")


def _writer(text: str) -> str:
    if not re.fullmatch(f"[A-Za-z0-9]{{1,{QUERY_DIGITS}}}", text):
        raise ValueError(f"give a name of at most {QUERY_DIGITS} letters and digits")
    return text


def _epoch(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("give a whole number, 0 or above")
    return int(text)


# What Spark itself is told by an option of the writer, and passes on.
_OF_SPARK = {"checkpointlocation"}

_ELSEWHERE = {
    "path": "save() takes no path: name the topic with option topic",
    "kafka.bootstrap.servers": "RocketMQ's is namesrv, the name server's host:port",
    "includeheaders": "RocketMQ's headers are properties: give a column properties",
    "subscribe": "did you mean topic?",
}

WRITE_OPTIONS = (
    *CONNECTION,
    Option("sendTimeout", "send_timeout", texts.seconds, "10s", "to store some messages, in one try"),
    Option("topic", "topic", texts.topic, None, "where rows go that name no topic in a column"),
    Option("group", "group", texts.group, DEFAULT_GROUP, "the name of the producer group"),
    Option(
        "selector",
        "selector",
        texts.one_of("round_robin", "hash", "random", "machine_room"),
        "round_robin",
        "which queue a row goes to that names none and has no sharding_key: the next one, by the hash of its keys, "
        "any one, or the next one of some rooms",
    ),
    Option("rooms", "rooms", texts.names, None, "machine rooms, with commas between, for selector=machine_room"),
    Option("batchBytes", "batch_bytes", texts.count, "524288", "send messages together up to so many bytes"),
    Option("maxMessageSize", "max_message_size", texts.count, "4194304", "the largest value that brokers take"),
    Option("rowsPerSecond", "rows_per_second", texts.count, None, "send at most so many rows a second in each task"),
    Option(
        "writerId",
        "writer",
        _writer,
        None,
        "a name for a batch write that may be run again: a stream has one of its own",
    ),
    Option("epoch", "epoch", _epoch, None, "which write of that name this is: later ones have larger numbers"),
)
