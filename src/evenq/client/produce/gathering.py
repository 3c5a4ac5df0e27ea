"""Messages that were sent one by one and travel together: because they may wait a little, or because they must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf

from evenq.client.net.session import Session
from evenq.client.produce.batching import BATCH_BYTES, batch_error
from evenq.client.produce.outgoing import Packer
from evenq.client.produce.sender import Promise, Select, Sender
from evenq.errors import RefusedError
from evenq.model import Message, MessageQueue, SendResult

__all__ = ["Convoy", "Linger", "OneByOne"]

# Requests of a connection that may be unanswered before messages wait for others: enough to keep a broker busy.
BUSY = 8
# Seconds that they wait at most, if no answer comes.
LONGEST = 0.005


class OneByOne:
    """Sends each message in a request of its own."""

    def __init__(self, sender: Sender, packer: Packer) -> None:
        self._sender = sender
        self._packer = packer

    def begin(
        self, message: Message, promise: Promise[SendResult], seconds: float, select: Select | None = None
    ) -> None:
        """Send a message within ``seconds``."""
        self._alone(message, promise, seconds, select)

    def flush(self) -> None:
        """Wait no longer: send all that is here, which is nothing."""

    def _alone(
        self,
        message: Message,
        promise: Promise[SendResult],
        seconds: float,
        select: Select | None,
        first: MessageQueue | None = None,
    ) -> None:
        self._sender.begin(self._packer.message(message), promise, seconds, select, first)


# What the messages of one batch have in common: topic, tags, their queue if it is known, and whether their sender chose
# it and they are bound to it.
_Key = tuple[str, str | None, MessageQueue | None, bool]
# A message that waits: its properties on the wire, who wants its receipt, and by when. A plain tuple: there are many.
_Waiting = tuple[Message, bytes, Promise[SendResult], float]


class _Group:
    """Messages that wait to leave together, for a broker. As a promise it stands for those of all of them."""

    __slots__ = ("_part", "address", "deadline", "members", "size", "timer")

    def __init__(self, address: str, timer: asyncio.TimerHandle, part: Callable[[list[_Waiting]], None]) -> None:
        self.address = address
        self.timer = timer
        self.members: list[_Waiting] = []
        self.size = 0
        self.deadline = inf
        self._part = part

    def done(self) -> bool:
        return False

    def set_result(self, receipts: Sequence[SendResult]) -> None:
        for (_, _, promise, _), receipt in zip(self.members, receipts, strict=True):
            if not promise.done():
                promise.set_result(receipt)

    def set_exception(self, exception: BaseException) -> None:
        if isinstance(exception, RefusedError):
            # Nothing is stored. One of them may be the reason, or that they are many: the others must not suffer.
            self._part(self.members)
            return
        for _, _, promise, _ in self.members:
            if not promise.done():
                promise.set_exception(exception)


class _Groups:
    """Messages that wait, each for ``seconds`` at most, by what they have in common."""

    def __init__(self, sender: Sender, packer: Packer, seconds: float) -> None:
        self._sender = sender
        self._packer = packer
        self._seconds = seconds
        self._limit = min(BATCH_BYTES, packer.limit)
        self.waiting: dict[_Key, _Group] = {}

    def add(self, key: _Key, message: Message, promise: Promise[SendResult], seconds: float, address: str = "") -> None:
        """Let a message wait that must be sent within ``seconds``."""
        own, size = self._packer.entry(message)
        deadline = self._sender.clock() + seconds
        waiting = (message, own, promise, deadline)
        if size > self._limit:
            # fits by itself, but not into a batch
            self._send_apart(key, [waiting])
            return
        group = self.waiting.get(key)
        if group is not None and group.size + size > self._limit:
            self._leave(key)
            # the next ones wait for the same broker
            address = group.address
            group = None
        if group is None:
            timer = asyncio.get_running_loop().call_later(self._seconds, self._leave, key)
            group = self.waiting[key] = _Group(address, timer, partial(self._send_apart, key))
        group.members.append(waiting)
        group.size += size
        if deadline < group.deadline:
            group.deadline = deadline

    def leave_to(self, address: str) -> None:
        """Send the messages that wait longest for a broker."""
        for key, group in self.waiting.items():
            if group.address == address:
                self._leave(key)
                return

    def flush(self) -> None:
        """Wait no longer: send all that is here."""
        for key in list(self.waiting):
            self._leave(key)

    def _leave(self, key: _Key) -> None:
        group = self.waiting.pop(key)
        group.timer.cancel()
        if len(group.members) == 1:
            self._send_apart(key, group.members)
            return
        messages, own, _, _ = zip(*group.members, strict=True)
        seconds = group.deadline - self._sender.clock()
        try:
            self._sender.begin(self._packer.batch(messages, own), group, seconds, _bound(key), key[2])
        except Exception:  # noqa: BLE001 - one of them cannot be sent: each is sent alone, and hears of its own failure
            self._send_apart(key, group.members)

    def _send_apart(self, key: _Key, members: Iterable[_Waiting]) -> None:
        for message, _, promise, deadline in members:
            seconds = deadline - self._sender.clock()
            try:
                self._sender.begin(self._packer.message(message), promise, seconds, _bound(key), key[2])
            except Exception as error:  # noqa: BLE001 - nobody else can tell whoever waits
                if not promise.done():
                    promise.set_exception(error)


def _bound(key: _Key) -> Select | None:
    _, _, queue, bound = key
    return (lambda route: queue) if queue is not None and bound else None


class _Together(OneByOne):
    """What those share who let messages wait for each other, ``seconds`` at most."""

    def __init__(self, session: Session, sender: Sender, packer: Packer, seconds: float) -> None:
        super().__init__(sender, packer)
        self._session = session
        self._groups = _Groups(sender, packer, seconds)

    def flush(self) -> None:
        """Wait no longer: send all that is here."""
        self._groups.flush()

    def _goes_alone(self, message: Message) -> bool:
        return len(message.body) > self._packer.compress_over or batch_error(message) is not None


class Linger(_Together):
    """Lets each message wait up to ``seconds`` for others of its topic, and sends them in one batch.

    Messages with different tags, or bound to different queues, do not travel together. One that is delayed, that is to
    be compressed, or whose queue cannot be told yet goes alone.
    """

    def begin(
        self, message: Message, promise: Promise[SendResult], seconds: float, select: Select | None = None
    ) -> None:
        """Send a message within ``seconds``: with others, or alone where it cannot travel with any."""
        route = self._session.routes.known(message.topic)
        if self._goes_alone(message) or (select is not None and route is None):
            self._alone(message, promise, seconds, select)
        else:
            queue = select(route) if select is not None and route is not None else None
            self._groups.add((message.topic, message.tags, queue, queue is not None), message, promise, seconds)


class Convoy(_Together):
    """Sends each message at once while its broker answers quickly. What comes while the broker has much to answer
    waits until it has answered something, and leaves with all others for the same queue.

    The queue of each message is the one that it would have had: the queues take turns message by message.
    """

    def __init__(self, session: Session, sender: Sender, packer: Packer) -> None:
        super().__init__(session, sender, packer, LONGEST)
        sender.on_answer = self._groups.leave_to

    def begin(
        self, message: Message, promise: Promise[SendResult], seconds: float, select: Select | None = None
    ) -> None:
        """Send a message within ``seconds``."""
        route = self._session.routes.known(message.topic)
        if route is None or not route.writable.queues or self._goes_alone(message):
            self._alone(message, promise, seconds, select)
            return
        queue = self._sender.chooser.choose(route.writable) if select is None else select(route)
        key = (message.topic, message.tags, queue, select is not None)
        if key in self._groups.waiting:
            self._groups.add(key, message, promise, seconds)
            return
        address = route.master(queue.broker)
        connection = self._session.connections.live(address)
        if connection is not None and connection.in_flight >= BUSY:
            self._groups.add(key, message, promise, seconds, address)
        else:
            self._alone(message, promise, seconds, select, queue)
