"""``evenq consume``: messages to the screen, a file or a pipe, as a member of a group."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal

import typer

from evenq.cli.options import NAMESRV, Namesrv, Topic, read_time
from evenq.cli.output import cell, plain
from evenq.client.consume.litepull import LitePullConsumer
from evenq.errors import ArgumentError
from evenq.protocol.view import MessageView

__all__ = ["consume"]

# Messages that are written, and so consumed, together.
_TOGETHER = 500
# How long one look for messages waits; a signal does not wait for it.
_PATIENCE = 60.0


def _text(message: MessageView) -> bytes:
    keys = f" {cell(message.keys)}" if message.keys else ""
    return f"{cell(message.queue)} {message.queue_offset}{keys}  {cell(message.body)}".encode(errors="replace")


def _json(message: MessageView) -> bytes:
    return json.dumps(plain(message), ensure_ascii=False).encode()


def _raw(message: MessageView) -> bytes:
    return message.body


_FORMATS: dict[str, Callable[[MessageView], bytes]] = {"text": _text, "json": _json, "raw": _raw}


def consume(
    topic: Topic,
    group: Annotated[str, typer.Option(help="The consumer group to join.")] = "evenq-cli",
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'paid || refunded'.")] = "*",
    sql: Annotated[str | None, typer.Option(help="Only messages that this SQL92 condition picks.")] = None,
    strategy: Annotated[str, typer.Option(help="How the group divides the queues.")] = "AVG",
    begin: Annotated[
        str, typer.Option("--from", metavar="first|last|TIME", help="Where a group that is new begins.")
    ] = "last",
    instance: Annotated[str | None, typer.Option(help="This member's name; the same after a restart.")] = None,
    form: Annotated[
        Literal["text", "json", "raw"], typer.Option("--format", help="One line each; raw is the body alone.")
    ] = "text",
    count: Annotated[int | None, typer.Option(help="End after so many messages.")] = None,
    namesrv: Namesrv = NAMESRV,
) -> None:
    """Print the messages of a topic as they come.

    Ends with --count, Ctrl-C or SIGTERM, and then hands its queues over. What was printed is consumed, nothing else.
    """
    if count is not None and count < 1:
        raise ArgumentError("--count", count, "give 1 or more")
    if sql is not None and tags != "*":
        raise ArgumentError("--sql", sql, "give tags or a condition, not both")
    start: str | datetime = begin if begin in ("first", "last") else read_time(begin, argument="--from")
    consumer = LitePullConsumer(namesrv, group, strategy=strategy, begin=start, instance=instance)
    consumer.subscribe(topic, tags, sql=sql)
    try:
        asyncio.run(_print_all(consumer, _FORMATS[form], count))
    except BrokenPipeError:
        # whoever read has had enough; Python would complain once more when it flushes at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _print_all(consumer: LitePullConsumer, form: Callable[[MessageView], bytes], count: int | None) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    stopping = asyncio.ensure_future(stopped.wait())
    left = count
    async with consumer:
        while left != 0 and not stopped.is_set():
            limit = _TOGETHER if left is None else min(left, _TOGETHER)
            poll = asyncio.ensure_future(consumer.poll(_PATIENCE, limit=limit))
            await asyncio.wait({poll, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                poll.cancel()
                break
            messages = poll.result()
            _write(b"".join(form(message) + b"\n" for message in messages))
            left = left and left - len(messages)
    stopping.cancel()


def _write(data: bytes) -> None:
    """Returns when it is out of our hands: what was not must not count as consumed."""
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
