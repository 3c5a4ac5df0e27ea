"""Supervision of background tasks: a failure is logged by name and counted, and the task goes on after a pause.

A background task has nobody who waits for it. Without supervision an exception ends it, and what it did is not done any
more, although everything else looks alive. Every loop of a client or broker therefore runs as steps of
:meth:`Supervisor.repeat`, or reports its failures to a :class:`Supervisor` of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from evenq.errors import EvenqError, RemoteError

__all__ = ["FailureLog", "Outages", "Supervisor", "callable_name", "warn_of_each"]

log = logging.getLogger(__name__)

# A failure that comes later than this after the one before is logged as a new one.
QUIET_S = 600.0
# The failures in a row that are logged are the first, the tenth, the hundredth and so on.
REPORT_FACTOR = 10
# how many lines are written at a time about things that are wrong
MOST_LINES = 20


def callable_name(function: object) -> str:
    """The name by which a user finds a function in their code.

    >>> callable_name(print), callable_name(logging.Logger.info)
    ('builtins.print', 'logging.Logger.info')
    """
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', None) or '?'}.{getattr(named, '__qualname__', '?')}"


def warn_of_each(logger: logging.Logger, name: object, lines: Sequence[str]) -> None:
    """Write a line for each thing that is wrong; of very many the first ones, and how many more there are."""
    for line in lines[:MOST_LINES]:
        logger.warning("%s: %s", name, line)
    if len(lines) > MOST_LINES:
        logger.warning("%s: %d more things like these are not listed", name, len(lines) - MOST_LINES)


class FailureLog:
    """Logs the failures of one thing: the first with its reason, later ones of the same kind as a count."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        # failures that were recorded since the last new one, and the number of them that is logged next
        self.count = 0
        self._next_report = 1
        self._kind: type[Exception] | None = None
        self._failed_at = 0.0
        self._clock = clock

    def record(self, error: Exception, then: str = "") -> None:
        """Count a failure, and log it unless it is one of many. ``then`` says what happens next."""
        now = self._clock()
        if type(error) is not self._kind or now - self._failed_at > QUIET_S:
            self.count, self._next_report, self._kind = 0, 1, type(error)
        self._failed_at = now
        self.count += 1
        if self.count < self._next_report:
            return
        self._next_report *= REPORT_FACTOR
        # evenq's own errors say what went wrong and where; anything else needs its traceback
        expected = isinstance(error, EvenqError)
        log.log(
            logging.WARNING if isinstance(error, RemoteError) else logging.ERROR,
            "%s failed%s: %s: %s%s",
            self.name,
            f" {self.count} times" if self.count > 1 else "",
            type(error).__name__,
            error,
            then and f"; {then}",
            exc_info=None if expected or self.count > 1 else error,
        )


class Outages:
    """Logs failures that last, such as those of a broker that is away: one warning when a thing begins to fail, the
    number of failures at the tenth, the hundredth and so on, and one line when it works again."""

    def __init__(self) -> None:
        # the number of failures since the last success
        self._counts: dict[str, int] = {}

    def failed(self, name: str, error: Exception) -> None:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count == 1:
            log.warning("%s failed and is repeated until it works: %s", name, error)
        elif count == REPORT_FACTOR ** (len(str(count)) - 1):
            log.warning("%s failed %d times: %s", name, count, error)

    def ended(self, name: str) -> None:
        """The thing works; nothing is logged unless it failed before."""
        if self._counts and (count := self._counts.pop(name, 0)):
            log.warning("%s works again after %d failures", name, count)


class Supervisor:
    """Keeps one background task going. Its pause doubles from failure to failure and is reset by a success."""

    def __init__(
        self,
        name: str,
        *,
        first_pause_s: float = 0.1,
        max_pause_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = FailureLog(name, clock=clock)
        self._first_pause_s = first_pause_s
        self._max_pause_s = max_pause_s
        self._pause_s = 0.0

    def failed(self, error: Exception) -> float:
        """Log a failure; gives the seconds to pause before the next attempt."""
        self._pause_s = min(self._max_pause_s, self._pause_s * 2 or self._first_pause_s)
        self.failures.record(error, f"trying again in {self._pause_s:g} s")
        return self._pause_s

    def succeeded(self) -> None:
        self._pause_s = 0.0

    async def repeat(
        self, step: Callable[[], Awaitable[object]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> NoReturn:
        """Run ``step`` for ever, until the task is cancelled. An exception ends one step, never the task."""
        while True:
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - the task must outlive whatever one step raises
                await sleep(self.failed(error))
            else:
                self.succeeded()
