"""One send from beginning to end: choose a queue, try, and where a try fails try elsewhere while there is time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from evenq.errors import (
    Attempt,
    ConnectError,
    NoPermission,
    RefusedError,
    RemoteError,
    RequestTimeout,
    SendFailed,
    SendInterrupted,
    SendTimeout,
    TopicNotFound,
)
from evenq.model import MessageQueue
from evenq.protocol.codes import ResponseCode

__all__ = ["Choice", "Failure", "StoredUnsafely", "Tries"]

T = TypeVar("T")

# Refusals that another broker, or the same one a moment later, may not repeat.
RETRYABLE = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


class StoredUnsafely(RemoteError):
    """A broker stored the message, with less safety than was asked for. Never raised to who sends: it has a receipt."""


class Choice(Protocol):
    """Which queue comes next, and what is learnt from how it went."""

    def choose(self, last_broker: str | None) -> MessageQueue: ...
    def record(self, broker: str, latency_ms: float, *, failed: bool, reachable: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A try that failed."""

    queue: MessageQueue
    seconds: float
    error: RemoteError

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.queue.broker, self.seconds, str(self.error))


class Tries:
    """The budget of one send: so many tries, within so many seconds in all, from ``began`` on."""

    __slots__ = ("_clock", "_deadline", "_tries", "_trying", "attempts", "seconds", "topic")

    def __init__(
        self,
        topic: str,
        tries: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        began: float | None = None,
    ) -> None:
        self.topic = topic
        self.seconds = seconds
        self.attempts: list[Attempt] = []
        self._tries = tries
        self._clock = clock
        self._deadline = (clock() if began is None else began) + seconds
        # the broker that is being tried, and since when
        self._trying: tuple[str, float] | None = None

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - self._clock()

    async def run(
        self,
        choice: Choice,
        attempt: Callable[[MessageQueue, float], Awaitable[T]],
        stale: Callable[[], Awaitable[None]],
        failed: Failure | None = None,
    ) -> T:
        """Try until ``attempt(queue, seconds left)`` succeeds; ``failed`` is a try that was made before.

        ``stale`` is called when a broker says that the topic is not there or may not be written: the route is old.
        An error that no other try can mend is raised as it is.
        """
        while True:
            if failed is not None:
                await self._learn(failed, choice, stale)
            if len(self.attempts) >= self._tries or self.left <= 0:
                raise self._given_up()
            queue = choice.choose(self.attempts[-1].broker if self.attempts else None)
            began = self._clock()
            self._trying = queue.broker, began
            try:
                result = await attempt(queue, self.left)
            except RemoteError as error:
                failed = Failure(queue, self._clock() - began, error)
                self._trying = None
            else:
                choice.record(queue.broker, (self._clock() - began) * 1000, failed=False, reachable=True)
                return result

    def timed_out(self) -> SendTimeout:
        """The error of a send that has no time left. A try that is still being made is told of, too."""
        return SendTimeout(
            self.topic,
            self._with_the_last("did not answer in time"),
            f"All of its {self.seconds:.3f} s were used up: give it more, or look at the brokers named",
        )

    def interrupted(self, failed: Failure | None) -> SendInterrupted:
        """The error of a send whose producer was closed; ``failed`` as for :meth:`run`, which may not have begun."""
        attempts = self._with_the_last("had not answered")
        if failed is not None and not attempts:
            attempts = [failed.attempt]
        return SendInterrupted(
            self.topic,
            attempts,
            "The producer was closed before the answer came, and it is not known whether a broker stored it: look for "
            "the message before it is sent again, or let it come twice",
        )

    def _with_the_last(self, error: str) -> list[Attempt]:
        """The attempts, and the one that is still being made."""
        if self._trying is None:
            return list(self.attempts)
        broker, began = self._trying
        return [*self.attempts, Attempt(broker, self._clock() - began, error)]

    async def _learn(self, failed: Failure, choice: Choice, stale: Callable[[], Awaitable[None]]) -> None:
        error = failed.error
        if not _worth_another_try(error):
            raise error
        broker, seconds = failed.queue.broker, failed.seconds
        reachable = not isinstance(error, ConnectError | RequestTimeout)
        choice.record(broker, seconds * 1000, failed=not isinstance(error, StoredUnsafely), reachable=reachable)
        self.attempts.append(failed.attempt)
        if isinstance(error, TopicNotFound | NoPermission):
            await stale()

    def _given_up(self) -> SendFailed:
        return self.timed_out() if self.left <= 0 else SendFailed(self.topic, self.attempts)


def _worth_another_try(error: RemoteError) -> bool:
    return not isinstance(error, RefusedError) or error.code in RETRYABLE
