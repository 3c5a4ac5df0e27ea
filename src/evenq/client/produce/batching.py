"""Batches: many messages in one request, made by the caller, or by dividing a long list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from operator import itemgetter
from typing import Any, TypeVar

from evenq.client.produce.outgoing import Packer
from evenq.client.produce.receipts import JoinedReceipts
from evenq.client.produce.sender import Select, Sender
from evenq.errors import ArgumentError, PartlySent
from evenq.model import Message, Property, SendResult
from evenq.protocol.names import RETRY

__all__ = ["BATCH_BYTES", "batch_error", "check_batch", "send_divided", "send_whole"]

T = TypeVar("T")

# Bytes of a batch that is made here: large enough to make requests cheap, small enough to share a broker with others.
BATCH_BYTES = 128 * 1024
# Batches of one divided list that are on their way at a time.
IN_FLIGHT = 8


# Properties that make a broker keep a message back. It does not look for them in a batch.
_DELAYING = frozenset(
    {Property.DELAY, Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_MS, Property.TIMER_DELAY_SEC, Property.HALF}
)


def _is_delayed(message: Message) -> bool:
    return bool(
        message.delay_level
        or message.deliver_at is not None
        or (message.properties and not _DELAYING.isdisjoint(message.properties))
    )


def batch_error(message: Message) -> str | None:
    """Why a message cannot be part of a batch, or None."""
    if (message.delay_level or message.deliver_at is not None or message.properties) and _is_delayed(message):
        return "a delayed message cannot be part of a batch: send it by itself"
    if message.topic.startswith(RETRY):
        return "a message to a retry topic cannot be part of a batch: send it by itself"
    return None


def checked_message(message: Message) -> Message:
    """What is to be sent."""
    if not isinstance(message, Message):
        raise ArgumentError("message", message, "give evenq.Message(topic, body)")
    return message


def check_batch(messages: Iterable[Message]) -> tuple[list[Message], bool]:
    """The messages as a list, if a broker takes them together: some, of one topic, none of them delayed; and whether
    all are plain, which is to say nothing but bodies."""
    if isinstance(messages, Message):
        raise ArgumentError("messages", messages.topic, "give several, e.g. in a list")
    batch = list(messages)
    if not batch:
        raise ArgumentError("messages", [], "give at least one message")
    if set(map(type, batch)) != {Message}:
        for each in batch:
            checked_message(each)
    topic = batch[0].topic
    # written out, since a call for each message would cost more than all the rest
    special = [
        each
        for each in batch
        if each.properties
        or each.tags
        or each.keys
        or each.sharding_key is not None
        or each.delay_level
        or each.deliver_at
        or each.topic != topic
    ]
    odd = next((each for each in special if each.topic != topic or _is_delayed(each)), batch[0])
    if odd.topic != topic:
        raise ArgumentError("messages", f"topics {topic!r} and {odd.topic!r}", "give messages of one topic at a time")
    if error := batch_error(odd):
        raise ArgumentError("messages", f"topic {topic!r}, keys {odd.keys}", error)
    return batch, not special


async def send_whole(
    sender: Sender, packer: Packer, messages: Sequence[Message], plain: bool, seconds: float, select: Select | None
) -> Sequence[SendResult]:
    """Send messages in one request."""
    own = packer.no_properties(messages) if plain else [packer.entry(message)[0] for message in messages]
    return await sender.send(packer.batch(messages, own), seconds, select)


async def send_divided(
    sender: Sender,
    packer: Packer,
    messages: Sequence[Message],
    seconds: float,
    parts: Iterable[tuple[Select | None, Sequence[int]]],
) -> Sequence[SendResult]:
    """Send messages in as many requests as it takes, several at a time; ``seconds`` are for each of them.

    ``parts`` are the positions of messages that may go together, and where they go.
    """
    room = asyncio.Semaphore(IN_FLIGHT)
    loop = asyncio.get_running_loop()
    sent: list[tuple[Sequence[int], asyncio.Future[Sequence[SendResult]]]] = []
    for select, positions in parts:
        for chunk, own in _chunks(packer, messages, positions):
            await room.acquire()
            receipts: asyncio.Future[Sequence[SendResult]] = loop.create_future()
            receipts.add_done_callback(lambda done: room.release())
            batch = packer.batch([messages[at] for at in chunk], own)
            sender.begin(batch, receipts, seconds, select)
            sent.append((chunk, receipts))
    chunks = [chunk for chunk, _ in sent]
    outcomes = await asyncio.gather(*(receipts for _, receipts in sent), return_exceptions=True)
    stored = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if errors and not (stored and isinstance(errors[0], Exception)):
        raise errors[0]
    if errors:
        raise PartlySent(messages[0].topic, _by_message(chunks, outcomes))
    if all(earlier[-1] < later[0] for earlier, later in pairwise(chunks)):
        return JoinedReceipts(stored)
    return _by_message(chunks, stored)


def _chunks(
    packer: Packer, messages: Sequence[Message], positions: Sequence[int]
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Cut positions into runs that fit in a batch, with the properties of their messages."""
    limit = min(BATCH_BYTES, packer.limit)
    chunk: list[int] = []
    own: list[bytes] = []
    size = 0
    for at in positions:
        properties, more = packer.entry(messages[at])
        size += more
        if size > limit and chunk:
            yield chunk, own
            chunk, own, size = [], [], more
        chunk.append(at)
        own.append(properties)
    if chunk:
        yield chunk, own


def _by_message(chunks: Iterable[Sequence[int]], outcomes: Iterable[Sequence[T] | BaseException]) -> list[Any]:
    """What came of each message, by its position: its receipt, or the error of its batch."""
    found: dict[int, object] = {}
    for chunk, outcome in zip(chunks, outcomes, strict=True):
        each = repeat(outcome) if isinstance(outcome, BaseException) else outcome
        found.update(zip(chunk, each, strict=False))
    return [result for _, result in sorted(found.items(), key=itemgetter(0))]
