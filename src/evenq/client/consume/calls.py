"""The calls of a handler that run now: where they run, how long they take, and what is done about those that hang."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec

from evenq.client.calling import Hooks, is_async
from evenq.client.consume.consumetrace import ConsumeTracer, TracedCall
from evenq.client.consume.dispatch import Handler, Outcome, Retry, checked_outcome, failures
from evenq.client.consume.stats import Stats
from evenq.client.consume.workers import Workers
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.protocol.view import MessageView
from evenq.supervision import FailureLog, callable_name

__all__ = ["Calls", "ConsumeEvent"]

log = logging.getLogger(__name__)

# Called with what became of a call.
Ended = Callable[[Outcome], None]

# A call that runs for so many seconds is reported.
SLOW = 60.0
# How often the calls are looked at.
LOOK = 1.0
# The level of a batch that took too long, as Java has it: 10 s.
LATE = Retry(delay_level=3)


class ConsumeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one call of the handler; what ``on_consume`` hooks hear.

    ``outcome`` is what becomes of the messages: None if all are consumed, or what says which of them come again
    (:attr:`failed` names them). ``error`` is what the handler raised. A call that was given up is ``timed_out``.
    """

    group: str
    queue: MessageQueue
    messages: Sequence[MessageView]
    outcome: Outcome
    error: Exception | None
    timed_out: bool
    elapsed_s: float

    @property
    def failed(self) -> list[MessageView]:
        """The messages that were not consumed."""
        return [message for message, _ in failures(self.messages, self.outcome)]


class _Call:
    """A call that runs now."""

    __slots__ = ("began", "error", "given_up", "messages", "overdue", "queue", "reported", "traced")

    def __init__(self, queue: MessageQueue, messages: list[MessageView], began: float) -> None:
        self.queue = queue
        self.messages = messages
        self.began = began
        self.traced: TracedCall | None = None
        # what the handler raised, or the error in what it returned
        self.error: Exception | None = None
        self.reported = False
        # whether it has taken longer than allowed, and whether that ended the waiting for it
        self.overdue = False
        self.given_up = False

    def give_up(self) -> None:
        """End the waiting for it."""
        raise NotImplementedError


class _Awaited(_Call):
    """A call that a task waits for."""

    __slots__ = ("_task",)

    def __init__(self, queue: MessageQueue, messages: list[MessageView], began: float) -> None:
        super().__init__(queue, messages, began)
        task = asyncio.current_task()
        assert task is not None
        self._task = task

    def give_up(self) -> None:
        self._task.cancel()

    def end_of_waiting(self) -> None:
        self._task.uncancel()


class _Threaded(_Call):
    """A call in a thread that nobody awaits: ``ended`` hears of its end."""

    __slots__ = ("_calls", "_ended")

    def __init__(
        self, queue: MessageQueue, messages: list[MessageView], began: float, calls: Calls, ended: Ended
    ) -> None:
        super().__init__(queue, messages, began)
        self._calls = calls
        self._ended = ended

    def returned(self, result: object) -> None:
        if not self.given_up:
            self._end(self._calls.outcome(self, result))

    def raised(self, error: Exception) -> None:
        if not self.given_up:
            self._end(self._calls.failed(self, error))

    def give_up(self) -> None:
        self._end(LATE)

    def _end(self, outcome: Outcome) -> None:
        try:
            self._calls.over(self, outcome)
        finally:
            self._ended(outcome)


class Calls:
    """Calls ``handler``, a plain function in a thread, a coroutine function in the loop.

    A call that takes longer than ``timeout`` seconds is given up on: its messages are to be seen again later, and what
    it returns in the end counts for nothing. ``in_order`` it is reported, and waited for: a thread cannot be stopped,
    so the same messages would be handed out a second time while the first call still has them.
    """

    def __init__(
        self,
        handler: Handler,
        group: str,
        *,
        timeout: float,
        stats: Stats,
        tracer: ConsumeTracer | None = None,
        in_order: bool = False,
        hooks: Hooks[ConsumeEvent] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(handler):
            raise ArgumentError("handler", handler, "give a function that takes a list of messages")
        # a handler is the user's: what it returns is an object until it was checked
        self._workers: Workers[list[MessageView], object] | None = None
        self._handle: Callable[[list[MessageView]], Awaitable[object]]
        if is_async(handler):
            self._handle = cast("Callable[[list[MessageView]], Awaitable[object]]", handler)
        else:
            self._workers = Workers(cast("Callable[[list[MessageView]], object]", handler), f"evenq-{group}")
            self._handle = self._workers.run
        self._group = group
        self._hooks = hooks
        self._handler_name = callable_name(handler)
        self._wrong_results = FailureLog(f"handling of messages of group {group}")
        self._errors = FailureLog(f"handler {self._handler_name} of group {group}")
        self._timeout = timeout
        self._stats = stats
        self._tracer = tracer
        self._in_order = in_order
        self._clock = clock
        self._running: dict[int, _Call] = {}
        # how many calls were given up on
        self.given_up = 0

    @property
    def in_threads(self) -> bool:
        """Whether the handler is a plain function."""
        return self._workers is not None

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def slow(self) -> int:
        """How many calls run for more than a minute now. For any thread: it looks at a copy, made in one step."""
        return sum(call.reported for call in list(self._running.values()))

    async def call(self, queue: MessageQueue, messages: list[MessageView]) -> Outcome:
        """What the handler says of the messages. An exception means the same as a retry."""
        call = _Awaited(queue, messages, self._clock())
        self._begin(call)
        outcome: Outcome
        try:
            # a list of its own: what the handler does to it must not change what is known of the batch
            result = await self._handle(list(messages))
        except asyncio.CancelledError:
            if not call.given_up:
                del self._running[id(call)]
                raise
            call.end_of_waiting()
            outcome = LATE
        except Exception as error:  # noqa: BLE001 - whatever a handler raises means the same: not consumed
            outcome = self.failed(call, error)
        else:
            outcome = self.outcome(call, result)
        self.over(call, outcome)
        return outcome

    def outcome(self, call: _Call, result: object) -> Outcome:
        """What the handler says of the messages. A result that says nothing of them means the same as a retry."""
        try:
            return checked_outcome(self._handler_name, result, len(call.messages))
        except ArgumentError as error:
            call.error = error
            self._wrong_results.record(error, "the messages will be redelivered")
            return Retry()

    def failed(self, call: _Call, error: Exception) -> Retry:
        """The handler raised an error: the messages are to be seen again."""
        call.error = error
        self._errors.record(error, f"{_named(call)} will be redelivered")
        return Retry()

    def begin(self, queue: MessageQueue, messages: list[MessageView], ended: Ended) -> None:
        """The same where the handler is a plain function, without a task: ``ended`` is called in the loop."""
        assert self._workers is not None
        call = _Threaded(queue, messages, self._clock(), self, ended)
        self._begin(call)
        # a list of its own, see call()
        self._workers.submit(list(messages), call)

    def _begin(self, call: _Call) -> None:
        if self._tracer is not None:
            call.traced = self._tracer.began(call.messages)
        self._running[id(call)] = call

    def over(self, call: _Call, outcome: Outcome) -> None:
        """A call has ended, or is waited for no longer."""
        del self._running[id(call)]
        messages, elapsed_s = call.messages, self._clock() - call.began
        if self._tracer is not None and call.traced is not None:
            self._tracer.ended(call.traced, outcome)
        self._stats.consumed(messages[0].topic, len(messages), elapsed_s, ok=outcome is None)
        if self._hooks:
            self._hooks.call(
                ConsumeEvent(
                    group=self._group,
                    queue=call.queue,
                    messages=messages,
                    outcome=outcome,
                    error=call.error,
                    timed_out=call.given_up,
                    elapsed_s=elapsed_s,
                )
            )

    async def direct(self, message: MessageView) -> Outcome:
        """What the handler says of one message, or what it raises: for administrators who try it out."""
        return checked_outcome(self._handler_name, await self._handle([message]), 1)

    async def wait_and_look(self) -> None:
        """Look at the calls in a moment. A task repeats this."""
        await asyncio.sleep(LOOK)
        self.look()

    def look(self) -> None:
        """Report calls that take long, and give up on those that take too long, unless they are in order."""
        now = self._clock()
        for call in list(self._running.values()):
            took = now - call.began
            if took > SLOW and not call.reported:
                call.reported = True
                log.warning("the handler has had %s for %.0f s: it may be blocked", _named(call), took)
            if took > self._timeout and not call.overdue:
                call.overdue = True
                if self._in_order:
                    log.error("the handler has had %s for %.0f s: the queue waits until it returns", _named(call), took)
                    continue
                call.given_up = True
                self.given_up += 1
                log.error("the handler has had %s for %.0f s: it is given up, they come again", _named(call), took)
                call.give_up()

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()


def _named(call: _Call) -> str:
    first, last = call.messages[0].queue_offset, call.messages[-1].queue_offset
    return f"{call.queue} from {first} to {last}"
