"""The lite pull consumer: it reads ahead by itself, and gives messages when it is asked for them.

asyncio; the sync one is a facade on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from evenq.balance import StrategyLike
from evenq.client.closing import Closing
from evenq.client.consume.answers import Answers
from evenq.client.consume.buffer import Buffer
from evenq.client.consume.fixed import FixedQueues
from evenq.client.consume.flow import SharedLimits
from evenq.client.consume.intake import Intake, Shown
from evenq.client.group.localoffsets import DEFAULT_FOLDER, LocalOffsets
from evenq.client.group.member import Member, checked_group
from evenq.client.group.starting import StartingPoint, milliseconds
from evenq.client.group.starts import Start
from evenq.client.group.watching import AssignmentListener, QueuesListener, Watch
from evenq.client.namespaces import Namespace
from evenq.client.net.acl import Credentials
from evenq.client.net.session import Session
from evenq.client.net.tls import TlsLike
from evenq.client.settings import (
    FlowControl,
    Intervals,
    Timeouts,
    checked_flow,
    checked_limit,
    checked_model,
    checked_topic,
    checked_wait,
)
from evenq.errors import ArgumentError, StateError
from evenq.model import MessageModel, MessageQueue
from evenq.protocol.bodies import Subscription
from evenq.protocol.filters import SQL92, TAG, subscription
from evenq.protocol.view import MessageView

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LitePullConsumer"]

# What one queue may hold in memory before its reading ahead waits.
READ_AHEAD = FlowControl(messages=8192, bytes=16 * 1024 * 1024)
# Offsets that are looked at together when messages are taken one by one.
TOGETHER = 1024
# Seconds that a record batch waits for more where more is known to be on its way: large ones cost less a row.
GATHER = 0.05


class LitePullConsumer:
    """A consumer that is asked for messages: a member of its group with ``subscribe``, by itself with ``assign``.

    ================ ===========================================================================
    ``strategy``     how the queues are divided: a name, a strategy, or a function
    ``instance``     this member's name; with it the client id is the same after a restart
    ``begin``        where a new group begins: ``"last"``, ``"first"`` or a datetime
    ``model``        ``CLUSTERING``, or ``BROADCASTING``: every member gets every message
    ``auto_commit``  asking for more says that what was given before is done; without it, only
                     ``commit`` says so
    ``offsets_in``   where a broadcasting member keeps its offsets, under its client id: give
                     ``instance``, or it will not find them again
    ``namespace``    a name that stands before those of the group and all topics on the brokers;
                     a strategy of your own sees topics with it
    ``flow_control`` what is read ahead of each queue
    ================ ===========================================================================

    It begins with the first call that needs it to. What it gave is done when it is asked for more, and when it is
    closed without an error; what is not done when it ends comes again. A queue that goes to another member is let go
    when what was given of it is done.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        *,
        strategy: StrategyLike = "AVG",
        instance: str | None = None,
        begin: str | datetime = "last",
        model: MessageModel | str = MessageModel.CLUSTERING,
        auto_commit: bool = True,
        offsets_in: Path | str = DEFAULT_FOLDER,
        namespace: str = "",
        flow_control: FlowControl = READ_AHEAD,
        credentials: Credentials | None = None,
        tls: TlsLike = None,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
    ) -> None:
        self.group = group
        self._namespace = names = Namespace(namespace)
        # inside and on the brokers
        self._wire_group = group = names.wrap(checked_group(group))
        self.model = checked_model(model)
        self._begin = begin
        self._limits = checked_flow(flow_control)
        self._auto_commit = auto_commit
        self._session = Session(
            namesrv, instance=instance, timeouts=timeouts, intervals=intervals, credentials=credentials, tls=tls
        )
        self._local: LocalOffsets | None = None
        if self.model is MessageModel.BROADCASTING:
            named = instance is not None
            self._local = LocalOffsets(self._session, group, StartingPoint.of(begin), Path(offsets_in), named=named)
        self._intake = Intake(self._session, group, self._subscription, auto_commit=auto_commit, namespace=names)
        self._shared_limits = SharedLimits(flow_control, lambda: self._source.holdings)
        self._watch = Watch(self._session, names)
        self._strategy = strategy
        self._member = Member(
            self._session,
            group,
            strategy=names.wrap_strategy(strategy),
            begin=begin,
            hold=self._hold,
            started=self._begin_queue,
            ended=self._shared_limits.divide_soon,
            resumed=lambda buffer: self._intake.wake(),
            pushed=False,
            broadcasting=self._local is not None,
            offsets=self._local,
            shown=names.unwrap,
        )
        self._member.rebalancer.on_plan.append(self._watch.planned)
        self._answers = Answers(
            self._session,
            group,
            holdings=lambda: self._source.holdings,
            subscriptions=lambda: self._member.subscriptions,
            settings=lambda: {
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                **self._member.settings,
                "autoCommit": str(auto_commit).lower(),
            },
            reset=self._reset,
        )
        self._fixed: FixedQueues[Buffer] | None = None
        self._starting = asyncio.Lock()
        self._started = False
        self._closing = Closing()

    @property
    def client_id(self) -> str:
        return self._session.client_id

    @property
    def strategy(self) -> StrategyLike:
        """How the queues are divided; may be set until the consumer starts."""
        return self._strategy

    @strategy.setter
    def strategy(self, strategy: StrategyLike) -> None:
        self._member.strategy = self._namespace.wrap_strategy(strategy)
        self._strategy = strategy

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this consumer's now."""
        return self._namespace.unwrap_queues(self._source.queues)

    # which messages

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> None:
        """Take a share of the topic: all messages, those with certain tags, or those that an SQL92 condition picks."""
        self._closing.check_open("consumer")
        if self._fixed is not None:
            raise StateError("this consumer has queues assigned: a consumer either subscribes or assigns")
        self._member.subscribe(self._namespace.wrap(checked_topic(topic)), sql or expression, SQL92 if sql else TAG)

    def unsubscribe(self, topic: str) -> None:
        """Take a topic away: its queues are let go as in a rebalance, when what was given of them is done."""
        self._member.unsubscribe(self._namespace.wrap(checked_topic(topic)))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Take exactly these queues, from now on. Nobody else in the group is asked."""
        if self._member.subscriptions or (self._started and self._fixed is None):
            raise StateError("this consumer has subscribed: a consumer either subscribes or assigns")
        if self._fixed is None:
            self._fixed = FixedQueues(
                self._session,
                self._wire_group,
                begin=self._begin,
                hold=self._hold,
                started=self._begin_queue,
                ended=self._shared_limits.divide_soon,
                offsets=self._local,
            )
        self._fixed.assign(map(self._namespace.wrap_queue, queues))

    def on_assignment(self, listener: AssignmentListener) -> None:
        """Call ``listener(topic, all its queues, mine)`` whenever this member's share of a topic changes."""
        self._watch.on_assignment(listener)

    def on_queues_changed(self, topic: str, listener: QueuesListener) -> None:
        """Call ``listener(topic, queues)`` when the topic has other queues: looked at after 10 s, then every 30 s
        (``Intervals(first_look, queue_check)``)."""
        self._watch.on_queues(self._namespace.wrap(checked_topic(topic)), listener)

    # messages

    async def poll(self, timeout: float = 1.0, *, limit: int = 1000) -> list[MessageView]:
        """The next messages, at most ``limit``; none when none came within ``timeout`` seconds."""
        until = time.monotonic() + checked_wait(timeout)
        checked_limit(limit)
        await self.start()
        while shown := await self._intake.look(limit, until - time.monotonic()):
            if found := self._intake.messages(shown):
                return found
        return []

    async def poll_arrow(
        self, timeout: float = 1.0, *, limit: int = 10_000, include_properties: bool = False
    ) -> pa.RecordBatch:
        """The same as a record batch, without a Python object per message; its columns are those of Spark."""
        until = time.monotonic() + checked_wait(timeout)
        checked_limit(limit)
        await self.start()
        while True:
            shown = await self._intake.look(limit, until - time.monotonic(), GATHER)
            found = self._intake.columns(shown, include_properties=include_properties)
            if len(found) or not shown:
                return found

    async def __aiter__(self) -> AsyncIterator[MessageView]:
        """Every message, until the consumer is closed. One is done when the next is asked for."""
        while not self._closing.begun:
            for message in self._intake.hand_out(await self._look(TOGETHER, 1.0)):
                yield message

    # where

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``, which the queue must hold, or be about to."""
        queue = (await self._buffer(queue)).queue
        address = self._session.routes.address_of(queue)
        first, end = await asyncio.gather(
            self._session.remote.min_offset(address, queue), self._session.remote.max_offset(address, queue)
        )
        if not first <= offset <= end:
            named = self._namespace.unwrap_queue(queue)
            raise ArgumentError("offset", offset, f"{named} holds {first} to {end - 1}: give one of these, or {end}")
        self._seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go back to the first message that the queue still holds."""
        queue = (await self._buffer(queue)).queue
        address = self._session.routes.address_of(queue)
        self._seek(queue, await self._session.remote.min_offset(address, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on."""
        queue = (await self._buffer(queue)).queue
        address = self._session.routes.address_of(queue)
        self._seek(queue, await self._session.remote.max_offset(address, queue))

    async def position(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue has, or the first one after it."""
        return (await self._buffer(queue)).given

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message stored at that time or later. The queue need not be this consumer's."""
        queue = self._namespace.wrap_queue(queue)
        await self._session.routes.get(queue.topic)
        address = self._session.routes.address_of(queue)
        return await self._session.remote.offset_at(address, queue, milliseconds(when, "when"))

    async def queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic."""
        route = await self._session.routes.refresh(self._namespace.wrap(topic))
        return self._namespace.unwrap_queues(sorted(route.readable))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give nothing of these queues until they are resumed. They stay this consumer's."""
        for queue in queues:
            (await self._buffer(queue)).paused = True

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            (await self._buffer(queue)).paused = False
        self._intake.wake()

    # how far

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Everything that was given is done, or what lies before these offsets is: store that, and wait for it."""
        if offsets is None:
            self._intake.finish()
            buffers = self._source.holdings
        else:
            buffers = [(await self._buffer(queue)).finished(offset, queue) for queue, offset in offsets.items()]
        await asyncio.gather(*map(self._source.commit, buffers))
        if self._local is not None:
            await self._local.write()

    async def committed(self, queue: MessageQueue) -> int | None:
        """What the brokers have stored for the group, or this member's file where it broadcasts; None for nothing. The
        queue need not be this consumer's."""
        queue = self._namespace.wrap_queue(queue)
        if self._local is not None:
            return await self._local.stored(queue)
        await self._session.routes.get(queue.topic)
        address = self._session.routes.address_of(queue)
        return await self._session.remote.stored_offset(address, self._wire_group, queue)

    # begin and end

    async def start(self) -> None:
        """Begin now rather than with the first call that needs it. Returns when the brokers know of this consumer."""
        async with self._starting:
            self._closing.check_open("consumer")
            if not self._started:
                self._answers.serve()
                await self._source.join()
                # it may have been closed meanwhile, by another thread or task
                self._closing.check_open("consumer")
                self._session.start()
                self._watch.start()
                if self._local is not None:
                    self._session.spawn(
                        self._session.every(
                            self._session.intervals.commit, self._local.write, "writing of local offsets"
                        )
                    )
                self._started = True

    async def close(self, *, done: bool = True) -> None:
        """Commit, hand everything over and leave. Safe to call twice: both calls return at the end.

        ``done``: what was given last is done, too. Without ``auto_commit`` only :meth:`commit` says what is done, so
        nothing else is committed here.
        """
        self._intake.close()
        await self._closing.run(partial(self._leave, done=done and self._auto_commit), self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(done=kind is None)

    # inside

    async def _leave(self, *, done: bool) -> None:
        if self._started:
            self._started = False
            if done:
                self._intake.finish()
            else:
                self._intake.take_back()
            await self._source.leave()
            if self._local is not None:
                await self._local.write()

    @property
    def _source(self) -> Member[Buffer] | FixedQueues[Buffer]:
        return self._member if self._fixed is None else self._fixed

    def _hold(self, queue: MessageQueue, start: Start) -> Buffer:
        return Buffer(queue, start.offset, self._limits, stored=start.is_stored)

    def _begin_queue(self, buffer: Buffer) -> None:
        # before the first pull, whose task begins after this
        self._shared_limits.divide_soon()
        self._intake.start(buffer)

    async def _reset(self, buffer: Buffer, offset: int) -> None:
        if buffer.dropped:
            return
        self._intake.seek(buffer, offset)
        # also where it is behind what is stored
        buffer.committed, buffer.commit_waits = -1, False
        await self._source.commit(buffer)

    def _subscription(self, topic: str) -> Subscription:
        return self._member.subscription(topic) if self._fixed is None else subscription(topic, version=0)

    async def _look(self, limit: int, timeout: float) -> list[Shown]:
        await self.start()
        return await self._intake.look(limit, timeout)

    async def _buffer(self, queue: MessageQueue) -> Buffer:
        await self.start()
        return self._held_buffer(self._namespace.wrap_queue(queue))

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset`` in the buffer that the queue has now: a rebalance may have made a new one while brokers
        were asked."""
        buffer = self._held_buffer(queue)
        self._intake.seek(buffer, offset)
        # without auto_commit a seek must not commit what lies before it
        buffer.commit_waits = not self._auto_commit

    def _held_buffer(self, queue: MessageQueue) -> Buffer:
        buffer = self._intake.buffers.get(queue)
        if buffer is None:
            wanted = self._namespace.unwrap_queue(queue)
            raise StateError(
                f"{wanted} is not this consumer's now; it has {', '.join(map(str, self.queues)) or 'none'}"
            )
        return buffer
