"""Java clients as Python sees them: what they got and hold, and how to tell them something."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from evenq.model import Message, MessageQueue, SendResult
from evenq.protocol.view import MessageView
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.realmq.host import JavaHost

__all__ = [
    "Flood",
    "JavaClient",
    "JavaMember",
    "JavaProducer",
    "JavaTransactions",
    "LocalState",
    "Mode",
    "Received",
    "Reply",
    "Total",
]

Mode = Literal["sync", "async", "oneway", "batch", "ordered"]
LocalState = Literal["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
T = TypeVar("T")


class Received(msgspec.Struct, frozen=True):
    """A message that a listener got, and when (seconds since 1970, the Java side's clock)."""

    at: float
    message: MessageView


class Total(msgspec.Struct, frozen=True):
    """How many messages a member got, the bytes of their bodies, and when the last of them came (0 if none did)."""

    count: int
    bytes: int
    last: float


class Flood(msgspec.Struct, frozen=True):
    """What became of a flood: how long it took, how many sends failed, and the first few errors."""

    seconds: float
    failed: int
    errors: list[str]


class Reply(msgspec.Struct, frozen=True):
    """What somebody replied to a request."""

    body: bytes
    properties: dict[str, str]


class JavaClient:
    """An actor in a :class:`~tests.realmq.JavaHost`."""

    def __init__(self, host: JavaHost, name: str, kind: str, settings: dict[str, Any]) -> None:
        self._host = host
        self.name = name
        self._stopped = False
        self.client_id = self._ask("start", str, kind=kind, **settings)

    def _ask(self, verb: str, answer: type[T], *, seconds: float = 60.0, **arguments: Any) -> T:
        return self._host.ask(verb, answer, seconds=seconds, actor=self.name, **arguments)

    def stop(self) -> None:
        """Shut the client down in good order: a consumer commits its offsets and leaves its group. Once is enough."""
        if not self._stopped:
            self._stopped = True
            self._ask("stop", type(None))

    def kill(self) -> None:
        """SIGKILL to its JVM, and so to every other client in that."""
        self._host.kill()


class _Listening(JavaClient):
    """A client with a listener: ``messages`` fills as that is called."""

    def __init__(self, host: JavaHost, name: str, kind: str, settings: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._messages: list[Received] = []
        host.listen(name, self._add)  # before it starts: the first message may be faster than the answer
        super().__init__(host, name, kind, settings)

    def _add(self, at: float, messages: Iterable[MessageView]) -> None:
        with self._lock:
            self._messages += [Received(at, message) for message in messages]

    @property
    def messages(self) -> list[Received]:
        """What came so far, in the order of the listener's calls; a copy."""
        with self._lock:
            return self._messages.copy()

    def wait_for(self, count: int, seconds: float = 60.0) -> list[Received]:
        """Wait until at least ``count`` messages have come."""
        wait_until(
            lambda: len(self._messages) >= count,
            lambda: f"{count} messages at {self.client_id}: {len(self._messages)} came",
            seconds,
        )
        return self.messages


class JavaMember(_Listening):
    """A member of a consumer group: :meth:`JavaHost.push` and :meth:`JavaHost.lite_pull` make one.

    One that was told to count only has no ``messages``.
    """

    def wait_ready(self, queues: int = 1, seconds: float = 60.0) -> list[MessageQueue]:
        """Wait until the member holds at least ``queues`` queues.

        Usually a second; but a Java member that missed a heartbeat or a new route makes up for it 30 s later.
        """
        return wait_until(
            lambda: held if len(held := self.assignment()) >= queues else None,
            lambda: f"{queues} queues for {self.client_id}: it holds {self.assignment()}",
            seconds,
        )

    def assignment(self) -> list[MessageQueue]:
        """The queues that it holds now, sorted, without those of its retry topic."""
        held = self._ask("assignment", list[MessageQueue])
        return [queue for queue in held if not queue.topic.startswith("%RETRY%")]

    def total(self) -> Total:
        """How many messages came, also for a member that only counts."""
        return self._ask("total", Total)


class JavaTransactions(_Listening):
    """A producer of transactions: :meth:`JavaHost.transactions` makes one. ``messages`` are what it was asked about."""

    def send(self, messages: Sequence[Message], state: LocalState) -> list[str]:
        """Send each as a half message and say at once what became of its transaction; their ids."""
        return self._ask("send", list[str], messages=_wire(messages), state=state)


class JavaProducer(JavaClient):
    """A producer: :meth:`JavaHost.producer` makes one."""

    def send(self, messages: Sequence[Message], mode: Mode = "sync", *, argument: str = "") -> list[SendResult]:
        """Send these messages, properties to the letter. One-way gives no receipts, a batch gives one.

        ``async`` receipts come in the order of the answers. ``ordered`` chooses the queue by the hash of ``argument``.
        """
        return self._ask("send", list[SendResult], messages=_wire(messages), mode=mode, argument=argument)

    def request(self, message: Message, timeout: float = 45.0) -> Reply:
        """Send a message and wait for the reply to it: usually a moment, but see :meth:`JavaMember.wait_ready`."""
        (wire,) = _wire([message])
        return self._ask("request", Reply, message=wire, timeout=round(timeout * 1000))

    def flood(
        self,
        topic: str,
        count: int,
        *,
        size: int = 100,
        mode: Mode = "async",
        batch: int = 100,
        rate: float = 0,
        argument: str = "",
        seconds: float = 300.0,
    ) -> Flood:
        """Send ``count`` messages whose bodies are their numbers, filled up with spaces to ``size`` bytes.

        As fast as they go (1000 in flight in mode ``async``), or at ``rate`` messages a second.
        """
        return self._ask(
            "flood",
            Flood,
            seconds=seconds,
            topic=topic,
            count=count,
            size=size,
            mode=mode,
            batch=batch,
            rate=rate,
            argument=argument,
        )


def _wire(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [
        {"topic": each.topic, "body": each.body, "flag": each.flag, "properties": each.wire_properties()}
        for each in messages
    ]
