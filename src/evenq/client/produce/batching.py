"""Batches: many messages in one request, made by the caller, by dividing a long list, or by waiting a little."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from evenq.client.net.routes import Routes
from evenq.client.produce.outgoing import Packer
from evenq.client.produce.receipts import JoinedReceipts
from evenq.client.produce.sender import Promise, Select, Sender
from evenq.errors import ArgumentError, PartlySent
from evenq.model import Message, MessageQueue, Property, SendResult
from evenq.protocol.names import RETRY

__all__ = ["Linger", "batch_error", "check_batch", "send_divided", "send_whole"]

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
    if _is_delayed(message):
        return "a delayed message cannot be part of a batch: send it by itself"
    if message.topic.startswith(RETRY):
        return "a message to a retry topic cannot be part of a batch: send it by itself"
    return None


def check_batch(messages: Iterable[Message]) -> list[Message]:
    """The messages as a list, if a broker takes them together: some, of one topic, none of them delayed."""
    batch = list(messages)
    if not batch:
        raise ArgumentError("messages", [], "give at least one message")
    topic = batch[0].topic
    looked_at = (
        each for each in batch if each.topic != topic or each.properties or each.delay_level or each.deliver_at
    )
    odd = next((each for each in looked_at if each.topic != topic or _is_delayed(each)), batch[0])
    if odd.topic != topic:
        raise ArgumentError("messages", f"topics {topic!r} and {odd.topic!r}", "give messages of one topic at a time")
    if error := batch_error(odd):
        raise ArgumentError("messages", f"topic {topic!r}, keys {odd.keys}", error)
    return batch


async def send_whole(
    sender: Sender, packer: Packer, messages: Sequence[Message], seconds: float, select: Select | None
) -> Sequence[SendResult]:
    """Send messages in one request."""
    parcel = packer.batch(messages, [packer.own_properties(message) for message in messages])
    return await sender.send(parcel, seconds, select)


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
        properties = packer.own_properties(messages[at])
        more = packer.entry_size(messages[at], properties)
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


class _Key(NamedTuple):
    """What the messages of one batch have in common."""

    topic: str
    queue: MessageQueue | None
    tags: str | None


class _Gathering:
    """Messages that wait to leave together. As a promise it stands for those of all of them."""

    __slots__ = ("deadline", "messages", "own", "promises", "size", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.messages: list[Message] = []
        # their properties
        self.own: list[bytes] = []
        self.promises: list[Promise[SendResult]] = []
        self.size = 0
        self.deadline = inf

    def done(self) -> bool:
        return False

    def set_result(self, receipts: Sequence[SendResult]) -> None:
        for promise, receipt in zip(self.promises, receipts, strict=True):
            if not promise.done():
                promise.set_result(receipt)

    def set_exception(self, exception: BaseException) -> None:
        for promise in self.promises:
            if not promise.done():
                promise.set_exception(exception)


class Linger:
    """Lets each message wait up to ``seconds`` for others of its topic, and sends them in one batch.

    Messages with different tags, or bound to different queues, do not travel together. One that is delayed, that is to
    be compressed, or whose queue cannot be told yet goes alone.
    """

    def __init__(self, sender: Sender, packer: Packer, routes: Routes, seconds: float) -> None:
        self._sender = sender
        self._packer = packer
        self._routes = routes
        self._seconds = seconds
        self._limit = min(BATCH_BYTES, packer.limit)
        self._gathering: dict[_Key, _Gathering] = {}

    def begin(
        self, message: Message, promise: Promise[SendResult], seconds: float, select: Select | None = None
    ) -> None:
        """Send a message within ``seconds``: with others, or alone where it cannot travel with any."""
        route = self._routes.known(message.topic)
        alone = (
            batch_error(message) is not None
            or len(message.body) > self._packer.compress_over
            or (select is not None and route is None)
        )
        if alone:
            self._sender.begin(self._packer.message(message), promise, seconds, select)
        else:
            queue = select(route) if select is not None and route is not None else None
            self._add(_Key(message.topic, queue, message.tags), message, promise, seconds)

    def _add(self, key: _Key, message: Message, promise: Promise[SendResult], seconds: float) -> None:
        own = self._packer.own_properties(message)
        size = self._packer.entry_size(message, own)
        group = self._gathering.get(key)
        if group is not None and group.size + size > self._limit:
            self._leave(key)
            group = None
        if group is None:
            timer = asyncio.get_running_loop().call_later(self._seconds, self._leave, key)
            group = self._gathering[key] = _Gathering(timer)
        group.messages.append(message)
        group.own.append(own)
        group.promises.append(promise)
        group.size += size
        group.deadline = min(group.deadline, self._sender.clock() + seconds)

    def flush(self) -> None:
        """Wait no longer: send all that is here."""
        for key in list(self._gathering):
            self._leave(key)

    def _leave(self, key: _Key) -> None:
        group = self._gathering.pop(key)
        group.timer.cancel()
        batch = self._packer.batch(group.messages, group.own)
        queue = key.queue
        select = None if queue is None else lambda route: queue
        self._sender.begin(batch, group, group.deadline - self._sender.clock(), select)
