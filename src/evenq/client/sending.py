"""One send from beginning to end: choose a queue, try, and where a try fails try elsewhere while there is time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from evenq.errors import (
    Attempt,
    ConnectError,
    NoPermission,
    RefusedError,
    RemoteError,
    RequestTimeout,
    SendFailed,
    SendTimeout,
    TopicNotFound,
)
from evenq.model import MessageQueue
from evenq.protocol.codes import ResponseCode

__all__ = ["Choice", "Tries"]

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


class Choice(Protocol):
    """Which queue comes next, and what is learnt from how it went."""

    def choose(self, last_broker: str | None) -> MessageQueue: ...
    def record(self, broker: str, latency_ms: float, *, failed: bool, reachable: bool) -> None: ...


@dataclass(slots=True)
class Tries:
    """The budget of one send: so many tries, within so many seconds in all."""

    topic: str
    tries: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    attempts: list[Attempt] = field(default_factory=list)

    async def run(
        self,
        choice: Choice,
        attempt: Callable[[MessageQueue, float], Awaitable[T]],
        stale: Callable[[], Awaitable[None]],
    ) -> T:
        """Try until ``attempt(queue, seconds left)`` succeeds.

        ``stale`` is called when a broker says that the topic is not there or may not be written: the route is old.
        An error that no other try can mend is raised as it is.
        """
        deadline = self.clock() + self.seconds
        last_broker: str | None = None
        for _ in range(self.tries):
            queue = choice.choose(last_broker)
            began = self.clock()
            if began >= deadline:
                raise SendTimeout(self.topic, self.attempts, self._advice())
            try:
                result = await attempt(queue, deadline - began)
            except RemoteError as error:
                if not _worth_another_try(error):
                    raise
                took = self.clock() - began
                reachable = not isinstance(error, ConnectError | RequestTimeout)
                choice.record(queue.broker, took * 1000, failed=True, reachable=reachable)
                self.attempts.append(Attempt(queue.broker, took, str(error)))
                last_broker = queue.broker
                if isinstance(error, TopicNotFound | NoPermission):
                    await stale()
            else:
                choice.record(queue.broker, (self.clock() - began) * 1000, failed=False, reachable=True)
                return result
        if self.clock() >= deadline:
            raise SendTimeout(self.topic, self.attempts, self._advice())
        raise SendFailed(self.topic, self.attempts)

    def _advice(self) -> str:
        return f"All of its {self.seconds:.3f} s were used up: give it more, or look at the brokers named"


def _worth_another_try(error: RemoteError) -> bool:
    return not isinstance(error, RefusedError) or error.code in RETRYABLE
