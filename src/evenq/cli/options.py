"""What the commands about a cluster have in common: their options, and how texts of a command line are read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from evenq.client.admin import Admin
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = [
    "NAMESRV",
    "AsJson",
    "Namesrv",
    "Topic",
    "administer",
    "command_group",
    "read_pair",
    "read_queue",
    "read_time",
]

T = TypeVar("T")

NAMESRV = "127.0.0.1:9876"

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv", "-n", envvar="EVENQ_NAMESRV", metavar="HOST:PORT", help="The name server; several, separated by ;"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Topic = Annotated[str, typer.Argument(help="The topic's name.")]


def command_group(text: str) -> typer.Typer:
    """The place of commands that belong together."""
    return typer.Typer(help=text, no_args_is_help=True)


def administer(namesrv: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Do something with an admin client of this cluster."""

    async def run() -> T:
        async with Admin(namesrv) as admin:
            return await work(admin)

    return asyncio.run(run())


def read_queue(topic: str, text: str, *, argument: str = "--queue") -> MessageQueue:
    """A queue as the tables show it.

    >>> read_queue("orders", "broker-a:3")
    MessageQueue(topic='orders', broker='broker-a', queue_id=3)
    """
    broker, _, number = text.rpartition(":")
    if not broker or not number.isdigit():
        raise ArgumentError(argument, text, "give a broker and the number of its queue, e.g. broker-a:3")
    return MessageQueue(topic, broker, int(number))


def read_pair(text: str, *, argument: str) -> tuple[str, str]:
    """A name and a value.

    >>> read_pair("colour=a=b", argument="--property")
    ('colour', 'a=b')
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentError(argument, text, "give NAME=VALUE")
    return name, value


def read_time(text: str, *, argument: str) -> datetime:
    """A time, ISO 8601; without an offset it is this machine's local time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ArgumentError(
            argument, text, "give a time, e.g. 2030-12-31T23:59:59, 2030-12-31T23:59:59Z or 2030-12-31"
        ) from None
