"""What ``on_send`` hooks hear: how the send of each message ended, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from evenq.client.calling import Hooks
from evenq.client.produce.sender import Promise
from evenq.errors import PartlySent
from evenq.model import Message, SendResult

__all__ = ["SendEvent", "SendHooks"]

R = TypeVar("R")


class SendEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the send of one message, all of its tries included.

    ``result`` is the receipt. It is None where the send failed, and for requests and one-way messages, which have none.
    """

    message: Message
    result: SendResult | None
    error: Exception | None
    elapsed_s: float


class _ObservedSend:
    """Stands between a send and whoever waits for it. It hears of the end also where nobody waits any more."""

    __slots__ = ("_began", "_hooks", "_message", "_promise")

    def __init__(self, hooks: SendHooks, message: Message, promise: Promise[SendResult]) -> None:
        self._hooks = hooks
        self._message = message
        self._promise = promise
        self._began = hooks.clock()

    def done(self) -> bool:
        return False

    def set_result(self, result: SendResult, /) -> None:
        self._hooks.tell(self._message, result, None, self._began)
        if not self._promise.done():
            self._promise.set_result(result)

    def set_exception(self, exception: BaseException, /) -> None:
        if isinstance(exception, Exception):
            self._hooks.tell(self._message, None, exception, self._began)
        if not self._promise.done():
            self._promise.set_exception(exception)


class SendHooks(Hooks[SendEvent]):
    """The hooks of one producer. Without any, sends go past this class."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("on_send")
        self.clock = clock

    def tell(self, message: Message, result: SendResult | None, error: Exception | None, began: float) -> None:
        self.call(SendEvent(message=message, result=result, error=error, elapsed_s=self.clock() - began))

    def observe(self, message: Message, promise: Promise[SendResult]) -> Promise[SendResult]:
        """The promise to keep in place of ``promise``."""
        return _ObservedSend(self, message, promise) if self else promise

    async def around(self, message: Message, send: Awaitable[R]) -> R:
        """What ``send`` gives, which sends one message."""
        began = self.clock()
        try:
            result = await send
        except Exception as error:
            self.tell(message, None, error, began)
            raise
        self.tell(message, result if isinstance(result, SendResult) else None, None, began)
        return result

    async def around_all(
        self, messages: Sequence[Message], send: Awaitable[Sequence[SendResult]]
    ) -> Sequence[SendResult]:
        """The same for a batch."""
        began = self.clock()
        try:
            results = await send
        except PartlySent as error:
            for message, outcome in zip(messages, error.results, strict=True):
                if isinstance(outcome, Exception):
                    self.tell(message, None, outcome, began)
                elif isinstance(outcome, SendResult):
                    self.tell(message, outcome, None, began)
            raise
        except Exception as error:
            for message in messages:
                self.tell(message, None, error, began)
            raise
        if self:
            for message, result in zip(messages, results, strict=True):
                self.tell(message, result, None, began)
        return results
