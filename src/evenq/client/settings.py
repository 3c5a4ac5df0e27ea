"""Settings of the clients, as small frozen values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from typing import TypeVar

from evenq.errors import ArgumentError
from evenq.model import MessageModel

__all__ = [
    "LEASE_VALID_S",
    "FlowControl",
    "Intervals",
    "Timeouts",
    "checked_callable",
    "checked_count",
    "checked_flow",
    "checked_kind",
    "checked_limit",
    "checked_model",
    "checked_retries",
    "checked_seconds",
    "checked_timeout",
    "checked_topic",
    "checked_trace",
    "checked_wait",
    "is_whole",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

# How long a hand-over lock counts after the broker granted it, as with Java's members. Brokers keep it twice as long.
LEASE_VALID_S = 30.0


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def checked_timeout(value: float) -> float:
    """The timeout of a call that sends: it must end.

    >>> checked_timeout("3")
    Traceback (most recent call last):
    ...
    evenq.errors.ArgumentError: timeout='3': give a number of seconds above 0, such as 3.0
    """
    if not _is_number(value) or not 0 < value < inf:
        raise ArgumentError("timeout", value, "give a number of seconds above 0, such as 3.0")
    return value


def checked_wait(value: float) -> float:
    """The timeout of a call that waits for messages: at 0 or less it takes what is there, at infinity it waits on."""
    if not _is_number(value):
        raise ArgumentError("timeout", value, "give a number of seconds, such as 1.0")
    return value


def checked_seconds(name: str, value: float, *, may_be_none: bool = True) -> float:
    """A time. Where it may be none at all, that is 0."""
    if not _is_number(value) or value < 0 or (value == 0 and not may_be_none):
        raise ArgumentError(name, value, f"give a number of seconds{', 0 for none' if may_be_none else ' above 0'}")
    return value


def is_whole(value: object) -> bool:
    """Whether it is a whole number, of whatever type."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def checked_limit(value: int) -> int:
    """How many messages a call may give."""
    if not is_whole(value) or value < 1:
        raise ArgumentError("limit", value, "give a number of messages, at least 1")
    return value


def checked_count(name: str, value: int, least: int = 1) -> int:
    """How many there are of something.

    >>> checked_count("batch", "8")
    Traceback (most recent call last):
    ...
    evenq.errors.ArgumentError: batch='8': give a whole number, at least 1
    """
    if not is_whole(value) or value < least:
        raise ArgumentError(name, value, f"give a whole number, at least {least}")
    return value


def checked_retries(value: int | None) -> int | None:
    """How often a message comes again; None for the default, which Java's consumers call -1.

    >>> checked_retries(3), checked_retries(-1)
    (3, None)
    """
    if value is None or (is_whole(value) and value == -1):
        return None
    if not is_whole(value) or value < 0:
        raise ArgumentError(
            "max_retries", value, "give a whole number, 0 or more, or -1 or None for the default (16; in order no end)"
        )
    return value


def checked_kind(name: str, value: T, kind: type, remedy: str) -> T:
    """A value that must be of one kind."""
    if not isinstance(value, kind):
        raise ArgumentError(name, value, remedy)
    return value


def checked_callable(name: str, value: F) -> F:
    """A function of the user's."""
    if not callable(value):
        raise ArgumentError(name, value, "give a function")
    return value


def checked_topic(topic: str) -> str:
    """A topic to subscribe to."""
    if not isinstance(topic, str) or not topic:
        raise ArgumentError("topic", topic, "give the name of a topic; of several topics, one in each call")
    return topic


def checked_trace(trace: bool | str, usual: str) -> str | None:
    """The topic to trace to; None for no trace.

    >>> checked_trace(True, "usual"), checked_trace("mine", "usual"), checked_trace(False, "usual")
    ('usual', 'mine', None)
    """
    if not isinstance(trace, bool | str):
        raise ArgumentError("trace", trace, "give True for the usual trace topic, the name of a topic, or False")
    return usual if trace is True else trace or None


def checked_model(model: MessageModel | str) -> MessageModel:
    """Whether members share the queues or have all of them each."""
    try:
        return MessageModel(model)
    except ValueError:
        raise ArgumentError("model", model, f"give {' or '.join(each.value for each in MessageModel)}") from None


def _positive(kind: object, **values: float) -> None:
    for name, value in values.items():
        if not _is_number(value) or not value > 0:
            raise ArgumentError(f"{type(kind).__name__}.{name}", value, "give a number above 0")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that each kind of call may take."""

    send: float = 3.0
    request: float = 3.0
    connect: float = 3.0
    # how long the broker may hold a pull that finds nothing; the pull itself gets `pull` seconds on top
    hold: float = 15.0
    pull: float = 10.0
    # how long a lost queue, or a shutdown, waits for the listeners that are running
    drain: float = 10.0
    # how long a handler may have a batch before it is given up on; in order it is reported, and waited for
    consume: float = 15 * 60.0

    def __post_init__(self) -> None:
        _positive(
            self, send=self.send, request=self.request, connect=self.connect,
            hold=self.hold, pull=self.pull, drain=self.drain, consume=self.consume,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between the things a client does by itself."""

    heartbeat: float = 30.0
    routes: float = 30.0
    rebalance: float = 20.0
    # at the most; while a member holds few queues it commits more often
    commit: float = 5.0
    # less than LEASE_VALID_S, or queues would stand still until their locks are renewed
    renew_locks: float = 20.0
    # before the first look at a topic whose queues are watched, and between the next ones
    first_look: float = 10.0
    queue_check: float = 30.0

    def __post_init__(self) -> None:
        _positive(
            self, heartbeat=self.heartbeat, routes=self.routes, rebalance=self.rebalance,
            commit=self.commit, renew_locks=self.renew_locks, first_look=self.first_look,
            queue_check=self.queue_check,
        )  # fmt: skip
        if self.renew_locks >= LEASE_VALID_S:
            remedy = f"give less than the {LEASE_VALID_S:g} s for which a lock counts, such as 20.0"
            raise ArgumentError("Intervals.renew_locks", self.renew_locks, remedy)


@dataclass(frozen=True, slots=True)
class FlowControl:
    """What may be in memory before pulls wait: of each queue, of all queues of a topic, and of all queues.

    The limits of a topic and of the whole consumer are divided evenly among the queues that it holds, as Java's
    consumers do; of what comes out, and the limit of a queue, the lower holds. One pull of a queue is always allowed.

    >>> FlowControl(topic_messages=300).for_queue(of_topic=3, of_all=8).messages
    100
    """

    messages: int = 1000
    bytes: int = 100 * 1024 * 1024
    # offsets from the first message that is not consumed to the last one that was pulled
    span: int = 2000
    topic_messages: int | None = None
    topic_bytes: int | None = None
    total_messages: int | None = None
    total_bytes: int | None = None

    def __post_init__(self) -> None:
        _positive(self, messages=self.messages, bytes=self.bytes, span=self.span)
        shared = {"topic_messages": self.topic_messages, "topic_bytes": self.topic_bytes}
        shared |= {"total_messages": self.total_messages, "total_bytes": self.total_bytes}
        _positive(self, **{name: value for name, value in shared.items() if value is not None})

    def for_queue(self, *, of_topic: int, of_all: int) -> FlowControl:
        """The limits of one of so many queues of its topic, and of all topics, that a consumer holds."""
        messages = _lowest(self.messages, (self.topic_messages, of_topic), (self.total_messages, of_all))
        size = _lowest(self.bytes, (self.topic_bytes, of_topic), (self.total_bytes, of_all))
        return FlowControl(messages=messages, bytes=size, span=self.span)

    @property
    def is_shared(self) -> bool:
        """Whether the limits of a queue depend on how many others are held."""
        return (self.topic_messages, self.topic_bytes, self.total_messages, self.total_bytes) != (None,) * 4


def checked_flow(limits: FlowControl) -> FlowControl:
    """What may be in memory."""
    return checked_kind("flow_control", limits, FlowControl, "give evenq.FlowControl(messages=…, bytes=…)")


def _lowest(own: int, *shared: tuple[int | None, int]) -> int:
    return min([own, *(max(1, limit // queues) for limit, queues in shared if limit is not None)])
