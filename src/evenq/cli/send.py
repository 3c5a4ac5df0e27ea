"""``evenq send``: messages from the command line, a file or a pipe."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from evenq.balance import HashSelector, RandomSelector, SelectorLike
from evenq.cli.options import NAMESRV, AsJson, Namesrv, Topic, read_pair, read_queue, read_time
from evenq.cli.output import print_json, print_table
from evenq.client.produce.producer import Producer
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue, SendResult

__all__ = ["send"]

SELECTORS: dict[str, Callable[[], SelectorLike]] = {"hash": HashSelector, "random": RandomSelector}

# Sends on their way at once.
_WINDOW = 1000
# Receipts that are shown one by one.
_FEW = 20


def send(
    topic: Topic,
    body: Annotated[str | None, typer.Argument(help="The message; without it, what comes in by the pipe.")] = None,
    file: Annotated[Path | None, typer.Option(help="Send what is in this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Every line is a message of its own.")] = False,
    keys: Annotated[list[str] | None, typer.Option(help="A key to find it by; may be given again.")] = None,
    tags: Annotated[str | None, typer.Option(help="The tag to filter by.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="May be given again.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Where to: broker-a:3.")] = None,
    selector: Annotated[
        Literal["hash", "random"] | None, typer.Option(help="Who chooses the queue; hash keeps an --arg in order.")
    ] = None,
    arg: Annotated[str | None, typer.Option(help="What the selector goes by.")] = None,
    count: Annotated[int, typer.Option(help="Send it so many times.")] = 1,
    delay_level: Annotated[int, typer.Option(help="1 (1 s) to 18 (2 h) later.")] = 0,
    deliver_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before this time.")] = None,
    group: Annotated[str, typer.Option(help="The producer group.")] = "evenq-cli",
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Send messages and tell where they are stored."""
    _check(body, file, selector, arg, count)
    properties = dict(read_pair(text, argument="--property") for text in prop or [])
    time_to_deliver = None if deliver_at is None else read_time(deliver_at, argument="--deliver-at")
    messages = [
        Message(
            topic,
            content,
            tags=tags,
            keys=keys or [],
            properties=properties,
            delay_level=delay_level,
            deliver_at=time_to_deliver,
        )
        for content in _bodies(body, file, lines)
    ] * count
    place = None if queue is None else read_queue(topic, queue)
    began = time.monotonic()
    receipts = asyncio.run(_send_all(namesrv, group, messages, place, selector, arg))
    _print_receipts(receipts, time.monotonic() - began, as_json)


def _check(body: str | None, file: Path | None, selector: str | None, arg: str | None, count: int) -> None:
    if body is not None and file is not None:
        raise ArgumentError("--file", str(file), "give a body or a file, not both")
    if (selector == "hash") != (arg is not None):
        raise ArgumentError("--arg", arg, "--selector hash and --arg go together")
    if count < 1:
        raise ArgumentError("--count", count, "give 1 or more")


def _bodies(body: str | None, file: Path | None, lines: bool) -> list[bytes]:
    if body is not None:
        content = body.encode(errors="surrogateescape")
    elif file is not None:
        content = file.read_bytes()
    elif sys.stdin.isatty():
        raise ArgumentError("body", None, "give a body, a --file, or something in a pipe")
    else:
        content = sys.stdin.buffer.read()
    return [line for line in content.splitlines() if line] if lines else [content]


async def _send_all(
    namesrv: str,
    group: str,
    messages: list[Message],
    queue: MessageQueue | None,
    selector: str | None,
    arg: str | None,
) -> list[SendResult]:
    chooser = SELECTORS[selector]() if selector else None
    # a broker may store what comes at once in any order: where order is wanted, one waits for the other
    window = 1 if queue is not None or selector == "hash" else _WINDOW
    receipts: list[SendResult] = []
    async with Producer(namesrv, group) as producer:
        for start in range(0, len(messages), window):
            part = messages[start : start + window]
            sends = (producer.send(message, queue=queue, selector=chooser, arg=arg) for message in part)
            receipts += await asyncio.gather(*sends)
    return receipts


def _print_receipts(receipts: list[SendResult], seconds: float, as_json: bool) -> None:
    if as_json:
        print_json(receipts)
    elif len(receipts) <= _FEW:
        print_table(
            ["queue", "offset", "status", "unique key", "broker's id"],
            [[each.queue, each.offset, each.status.name, each.msg_id, each.offset_msg_id] for each in receipts],
        )
    else:
        shares = Counter(receipt.queue for receipt in receipts)
        print_table(["queue", "messages"], sorted(shares.items()), footer=["all", len(receipts)])
        print(f"\n{len(receipts) / seconds:,.0f} messages a second")
