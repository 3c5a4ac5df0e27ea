"""The errors of evenq, one tree.

::

    EvenqError
    ├── LocalError                      the caller's mistake; nothing was sent
    │   ├── ArgumentError (ValueError)  an argument has a value it cannot have
    │   └── StateError                  the object is not in a state for this call (closed, not started, …)
    └── RemoteError                     something beyond this process failed
        ├── ProtocolError               the peer sent bytes that are not RocketMQ's protocol
        │   └── RecordError             … in one message, which it names by topic, queue and offset
        ├── ConnectError                no connection could be made, or it broke
        ├── RequestTimeout (TimeoutError)   the peer did not answer in time
        ├── RefusedError                the peer answered with an error code
        │   ├── TopicNotFound           … that the topic has no route
        │   └── NoPermission            … that the topic or group may not be used so
        ├── IncompleteAnswer            the peer has more rows than it gives in one answer
        ├── OffsetsLost                 messages that were to be read are gone from their queue
        ├── NoReply (TimeoutError)      a request was delivered, but nobody replied in time
        ├── PartlySent                  some batches of a large send were stored, others were not
        └── SendFailed                  a send was tried as often as allowed; holds every attempt
            ├── SendTimeout (TimeoutError)  … and its time was used up
            └── SendInterrupted         … and its producer was closed before the answer came

Each error carries what it speaks of in fields, and its text ends with a way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ArgumentError",
    "Attempt",
    "ConnectError",
    "EvenqError",
    "IncompleteAnswer",
    "LocalError",
    "NoPermission",
    "NoReply",
    "OffsetsLost",
    "PartlySent",
    "ProtocolError",
    "RecordError",
    "RefusedError",
    "RemoteError",
    "RequestTimeout",
    "SendFailed",
    "SendInterrupted",
    "SendTimeout",
    "StateError",
    "TopicNotFound",
]


class EvenqError(Exception):
    """Anything that evenq raises on purpose."""


class LocalError(EvenqError):
    """The caller's mistake. Nothing left this process."""


class ArgumentError(LocalError, ValueError):
    """An argument has a value that it cannot have.

    >>> str(ArgumentError("members", [], "give at least one member id"))
    'members=[]: give at least one member id'

    ``opening`` puts words in front that people know from elsewhere and search for, such as the Java client's.
    """

    def __init__(self, argument: str, value: object, remedy: str, *, opening: str = "") -> None:
        self.argument = argument
        self.value = value
        self.remedy = remedy
        super().__init__(f"{opening and opening + ': '}{argument}={value!r}: {remedy}")


class StateError(LocalError):
    """The object cannot do this now: it is closed, not started, or busy with something that excludes it."""


class RemoteError(EvenqError):
    """Something beyond this process failed."""


class ProtocolError(RemoteError):
    """The peer sent bytes that are not RocketMQ's protocol."""


class RecordError(ProtocolError):
    """One message cannot be read, though the records around it can: skip it by its queue and offset."""

    def __init__(self, topic: str, queue_id: int, queue_offset: int, reason: str) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.reason = reason
        super().__init__(f"message {queue_offset} of queue {queue_id} of topic {topic!r}: {reason}")


class ConnectError(RemoteError):
    """No connection to ``address`` could be made, or it broke before the answer came."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"connection to {address}: {reason}")


class RequestTimeout(RemoteError, TimeoutError):
    """``address`` did not answer the request within ``seconds``."""

    def __init__(self, address: str, request: str, seconds: float) -> None:
        self.address = address
        self.request = request
        self.seconds = seconds
        super().__init__(f"{address} did not answer {request} within {seconds:.3f} s")


class RefusedError(RemoteError):
    """The peer answered with an error: ``code`` is RocketMQ's response code, ``remark`` its own words."""

    def __init__(self, address: str, request: str, code: int, remark: str | None) -> None:
        self.address = address
        self.request = request
        self.code = code
        self.remark = remark or ""
        super().__init__(f"{address} refused {request} with code {code}: {self.remark or 'no reason given'}")


class TopicNotFound(RefusedError):
    """The name server or broker knows no such topic. Create it, or allow the broker to create topics."""


class NoPermission(RefusedError):
    """The topic or group may not be used this way on that broker."""


class IncompleteAnswer(RemoteError):
    """The peer has more topics, groups, queues or offsets than it gives in one answer; ``remark`` is how it says so."""

    def __init__(self, address: str, request: str, remark: str) -> None:
        self.address = address
        self.request = request
        self.remark = remark
        super().__init__(
            f"{address} answered {request} with a part: {remark}. Ask for less, such as one topic, or let the broker "
            "give more rows (evenq serve --max-admin-rows)"
        )


class OffsetsLost(RemoteError):
    """Offsets ``start`` to ``stop`` (not included) were to be read, but the queue does not hold them any more."""

    def __init__(self, queue: object, start: int, stop: int, held_from: int, held_to: int) -> None:
        self.queue = queue
        self.start = start
        self.stop = stop
        self.held_from = held_from
        self.held_to = held_to
        super().__init__(
            f"{queue} no longer holds offsets {start} to {stop - 1}, it holds {held_from} up to {held_to}: "
            "they were deleted, or the queue began anew. Keep messages longer on the broker, or allow the loss "
            "(Spark: failOnDataLoss=false) to go on with what is left"
        )


class NoReply(RemoteError, TimeoutError):
    """A request went to ``topic``, and no consumer replied to it within ``seconds``."""

    def __init__(self, topic: str, correlation_id: str, seconds: float) -> None:
        self.topic = topic
        self.correlation_id = correlation_id
        self.seconds = seconds
        super().__init__(
            f"nobody replied to request {correlation_id} in topic {topic!r} within {seconds:.3f} s: "
            "look whether a consumer that replies runs, or give it more time"
        )


class PartlySent(RemoteError):
    """Of a large send some batches failed. ``results`` has, for each message, its receipt or the error it met."""

    def __init__(self, topic: str, results: Sequence[object]) -> None:
        self.topic = topic
        self.results = tuple(results)
        errors = [result for result in self.results if isinstance(result, Exception)]
        super().__init__(
            f"{len(errors)} of {len(self.results)} messages to topic {topic!r} were not sent, the first because: "
            f"{errors[0]}. The field results tells which ones to send again"
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send: where it went, how long it took, what went wrong."""

    broker: str
    seconds: float
    error: str

    def __str__(self) -> str:
        return f"{self.broker} ({self.seconds * 1000:.0f} ms): {self.error}"


class SendFailed(RemoteError):
    """A send was tried as often as it may be, and every try failed."""

    def __init__(self, topic: str, attempts: Sequence[Attempt], remedy: str = "") -> None:
        self.topic = topic
        self.attempts = tuple(attempts)
        tried = "; ".join(map(str, self.attempts)) or "nothing was tried"
        super().__init__(f"send to topic {topic!r} failed: {tried}{'. ' + remedy if remedy else ''}")


class SendTimeout(SendFailed, TimeoutError):
    """A send used up its time. Whether a broker stored the message is not known."""


class SendInterrupted(SendFailed):
    """The producer was closed before the broker answered. Whether a broker stored the message is not known.

    A send of which nothing had left yet fails with :class:`StateError` instead.
    """
