"""The sync consumers: as in ``evenq.aio``, waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from evenq.balance import StrategyLike
from evenq.client.closing import sigterm_calls
from evenq.client.consume import litepull, push
from evenq.client.consume.dispatch import Handler
from evenq.client.sync.facade import Facade, blocking, mirrors, plain
from evenq.model import MessageQueue
from evenq.protocol.view import MessageView

__all__ = ["LitePullConsumer", "PushConsumer"]

# How late a signal handler, such as the one of Ctrl-C, may run while the main thread is in `PushConsumer.run`.
SIGNAL_DELAY_S = 0.5


class PushConsumer(Facade[push.PushConsumer]):
    __doc__ = push.PushConsumer.__doc__

    @mirrors(push.PushConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(push.PushConsumer(*args, **kwargs))
        self._stopped = threading.Event()

    start = blocking(push.PushConsumer.start)
    subscribe = plain(push.PushConsumer.subscribe)
    unsubscribe = plain(push.PushConsumer.unsubscribe)
    on_rebalance = plain(push.PushConsumer.on_rebalance)
    on_assignment = plain(push.PushConsumer.on_assignment)
    on_consume = plain(push.PushConsumer.on_consume)
    suspend = plain(push.PushConsumer.suspend)
    resume = plain(push.PushConsumer.resume)

    def run(self, handler: Handler, *, orderly: bool = False) -> None:
        """Consume until :meth:`stop`, KeyboardInterrupt or SystemExit, then hand over properly.

        SIGTERM ends it like :meth:`stop`, unless the program handles that signal itself.
        """
        with sigterm_calls(self.stop):
            self.start(handler, orderly=orderly)
            try:
                # A signal that comes just before the wait begins does not end it, and its handler runs after it.
                while not self._stopped.wait(SIGNAL_DELAY_S):
                    pass
            finally:
                self.close()

    def stop(self) -> None:
        """End :meth:`run`. May be called from any thread, and from a handler."""
        self._stopped.set()

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def strategy(self) -> StrategyLike:
        """How the queues are divided; may be set until the consumer starts."""
        return self._inner.strategy

    @strategy.setter
    def strategy(self, strategy: StrategyLike) -> None:
        self._in_loop(setattr, self._inner, "strategy", strategy)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member holds now."""
        return self._inner.queues

    @property
    def blocked(self) -> int:
        """How many calls of the handler have been running for more than a minute."""
        return self._inner.blocked


class LitePullConsumer(Facade[litepull.LitePullConsumer]):
    __doc__ = litepull.LitePullConsumer.__doc__

    @mirrors(litepull.LitePullConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(litepull.LitePullConsumer(*args, **kwargs))

    start = blocking(litepull.LitePullConsumer.start)
    subscribe = plain(litepull.LitePullConsumer.subscribe)
    unsubscribe = plain(litepull.LitePullConsumer.unsubscribe)
    assign = plain(litepull.LitePullConsumer.assign)
    on_assignment = plain(litepull.LitePullConsumer.on_assignment)
    on_queues_changed = plain(litepull.LitePullConsumer.on_queues_changed)

    seek = blocking(litepull.LitePullConsumer.seek)
    seek_to_begin = blocking(litepull.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(litepull.LitePullConsumer.seek_to_end)
    position = blocking(litepull.LitePullConsumer.position)
    offset_at = blocking(litepull.LitePullConsumer.offset_at)
    queues_of = blocking(litepull.LitePullConsumer.queues_of)
    pause = blocking(litepull.LitePullConsumer.pause)
    resume = blocking(litepull.LitePullConsumer.resume)
    commit = blocking(litepull.LitePullConsumer.commit)
    committed = blocking(litepull.LitePullConsumer.committed)

    # Records are unpacked in the loop: two threads that do so at a time wait for each other more than they gain.
    poll = blocking(litepull.LitePullConsumer.poll)
    poll_arrow = blocking(litepull.LitePullConsumer.poll_arrow)

    def __iter__(self) -> Iterator[MessageView]:
        """Every message, until the consumer is closed. One is done when the next is asked for."""
        while not self._inner._closing.begun:
            yield from self._inner._intake.hand_out(self._wait(self._inner._look(litepull.TOGETHER, 1.0)))

    def close(self, *, done: bool = True) -> None:
        self._wait(self._inner.close(done=done))

    close.__doc__ = litepull.LitePullConsumer.close.__doc__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(done=kind is None)

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def strategy(self) -> StrategyLike:
        """How the queues are divided; may be set until the consumer starts."""
        return self._inner.strategy

    @strategy.setter
    def strategy(self, strategy: StrategyLike) -> None:
        self._in_loop(setattr, self._inner, "strategy", strategy)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now."""
        return self._inner.queues
