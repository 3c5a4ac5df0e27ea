"""The push consumer: it pulls by itself and hands messages to a handler. asyncio; the sync one is a facade on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec

from evenq.balance import Plan, StrategyLike
from evenq.client.dispatch import Dispatcher, Handler, Listener, Retry, listener
from evenq.client.holding import Holding
from evenq.client.member import Member
from evenq.client.pulling import QueueReader
from evenq.client.session import Session
from evenq.client.settings import FlowControl, Intervals, Timeouts
from evenq.client.shares import RETRY_PREFIX
from evenq.client.starts import Start
from evenq.errors import ArgumentError, RemoteError, StateError
from evenq.model import MessageQueue, MessageView, Property
from evenq.protocol.headers import SendBack

__all__ = ["PushConsumer"]

log = logging.getLogger(__name__)

# A message that could not be given back to the broker is tried again so often before it stays unconsumed.
SEND_BACK_PAUSES = (0.1, 0.5, 2.0, 5.0)


class PushConsumer:
    """A member of a consumer group that is handed its messages.

    ================ =====================================================================
    ``strategy``     how the queues are divided: a name, a strategy, or a function
    ``instance``     this member's name; with it the client id is the same after a restart
    ``begin``        where a new group begins: ``"last"``, ``"first"`` or a datetime
    ``batch``        at most so many messages in one call of the handler
    ``concurrency``  so many calls of the handler at a time
    ``max_retries``  redeliveries of a message before it becomes a dead letter
    ================ =====================================================================

    The handler is a plain function (it runs in a thread) or a coroutine function. It gets a list of messages and
    returns None, or :class:`~evenq.client.dispatch.Retry` to see them again later; an exception counts as that.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        *,
        strategy: StrategyLike = "AVG",
        instance: str | None = None,
        begin: str | datetime = "last",
        batch: int = 1,
        concurrency: int = 20,
        max_retries: int = 16,
        pull_count: int = 32,
        flow_control: FlowControl | None = None,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
    ) -> None:
        for name, value in (("batch", batch), ("concurrency", concurrency), ("pull_count", pull_count)):
            if value < 1:
                raise ArgumentError(name, value, "give at least 1")
        self.group = group
        self._limits = flow_control or FlowControl()
        self._lanes = concurrency
        self._max_retries = max_retries
        self._session = Session(namesrv, instance=instance, timeouts=timeouts, intervals=intervals)
        self._member = Member(
            self._session,
            group,
            strategy=strategy,
            begin=begin,
            hold=self._hold,
            started=self._started,
        )
        self._dispatcher = Dispatcher(self._deliver, concurrency, batch)
        self._reader = QueueReader(
            self._session, group, self._member.subscription, self._dispatcher.announce, pull_count
        )
        self._pool: ThreadPoolExecutor | None = None
        self._listener: Listener | None = None
        self._stopping = asyncio.Event()

    @property
    def client_id(self) -> str:
        return self._session.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member holds now."""
        return self._member.queues

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Add a topic: all of it, or the messages with certain tags (``"paid || refunded"``)."""
        self._member.subscribe(topic, expression)

    def on_rebalance(self, listener: Callable[[Plan], None]) -> None:
        """Call ``listener`` with every plan (lose, keep, gain) before it is carried out."""
        self._member.rebalancer.on_plan.append(listener)

    async def start(self, handler: Handler) -> None:
        """Join the group and begin. Returns when the brokers know of this member."""
        self._session.check_open("consumer")
        if self._listener is not None:
            raise StateError("this consumer runs already: one handler each")
        self._pool = ThreadPoolExecutor(self._lanes, thread_name_prefix=f"evenq-{self.group}")
        self._listener = listener(handler, self._pool)
        self._dispatcher.start()
        self._session.start()
        await self._member.join()

    async def run(self, handler: Handler) -> None:
        """Consume until :meth:`stop`, then hand over properly: drain, commit, unlock, leave."""
        await self.start(handler)
        try:
            await self._stopping.wait()
        finally:
            await self.close()

    def stop(self) -> None:
        """End :meth:`run`. May be called from a handler that is a coroutine function."""
        self._stopping.set()

    async def close(self) -> None:
        """Hand everything over and leave the group. Safe to call twice."""
        self._stopping.set()
        if self._listener is not None:
            await self._member.leave()
            await self._dispatcher.stop()
        await self._session.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _hold(self, queue: MessageQueue, start: Start) -> Holding:
        return Holding(queue, start.offset, self._limits, stored=start.is_stored)

    def _started(self, holding: Holding) -> None:
        holding.reader = self._session.spawn(self._reader.read(holding))

    async def _deliver(self, holding: Holding, batch: list[MessageView]) -> None:
        assert self._listener is not None
        shown = [_as_sent(message) for message in batch] if holding.queue.topic.startswith(RETRY_PREFIX) else batch
        try:
            outcome = await self._listener(shown)
        except Exception:
            # whatever a handler raises means the same: not consumed
            log.exception("the handler failed on %d messages of %s", len(batch), holding.queue)
            outcome = Retry()
        if outcome is None or await self._send_back(holding, batch, outcome):
            holding.finish(batch)
        else:
            holding.release()

    async def _send_back(self, holding: Holding, batch: list[MessageView], retry: Retry) -> bool:
        """Give the messages to the broker, which delivers them again later. False when it does not take them."""
        address = self._session.routes.address_of(holding.queue)
        for message in batch:
            header = SendBack(
                offset=message.commit_log_offset,
                group=self.group,
                delay_level=retry.delay_level,
                origin_msg_id=message.properties.get(Property.ORIGIN_ID, message.msg_id),
                origin_topic=message.topic,
                max_reconsume_times=self._max_retries,
            )
            for pause in (*SEND_BACK_PAUSES, None):
                try:
                    await self._session.remote.send_back(address, header)
                    break
                except RemoteError as error:
                    if pause is None or holding.dropped:
                        log.error("%s at %d stays unconsumed: %s", holding.queue, message.queue_offset, error)
                        return False
                    await asyncio.sleep(pause)
        return True


def _as_sent(message: MessageView) -> MessageView:
    """A redelivered message under the topic that it was sent to."""
    topic = message.properties.get(Property.RETRY_TOPIC)
    return message if topic is None else msgspec.structs.replace(message, topic=topic)
