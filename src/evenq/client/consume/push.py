"""The push consumer: it pulls by itself and hands messages to a handler. asyncio; the sync one is a facade on it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from evenq.balance import Plan, StrategyLike
from evenq.client.calling import Hooks
from evenq.client.closing import Closing, sigterm_calls
from evenq.client.consume.answers import Answers
from evenq.client.consume.calls import Calls, ConsumeEvent
from evenq.client.consume.consumetrace import ConsumeTracer
from evenq.client.consume.crew import Crew
from evenq.client.consume.delivery import BroadcastDelivery, ConcurrentDelivery, GiveBack, OrderlyDelivery, as_sent
from evenq.client.consume.dispatch import Dispatcher, Handler, Outcome
from evenq.client.consume.flow import RampUp, SharedLimits
from evenq.client.consume.holding import Holding
from evenq.client.consume.pulling import QueueReader
from evenq.client.consume.stats import Stats
from evenq.client.group.localoffsets import DEFAULT_FOLDER, LocalOffsets
from evenq.client.group.member import Member, checked_group
from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start
from evenq.client.group.watching import AssignmentListener, Watch
from evenq.client.namespaces import Namespace
from evenq.client.net.acl import Credentials
from evenq.client.net.session import Session
from evenq.client.net.tls import TlsLike
from evenq.client.produce.trace import FLUSH_EVERY, TRACE_TOPIC
from evenq.client.settings import (
    FlowControl,
    Intervals,
    Timeouts,
    checked_callable,
    checked_count,
    checked_flow,
    checked_model,
    checked_retries,
    checked_seconds,
    checked_topic,
    checked_trace,
)
from evenq.errors import StateError
from evenq.model import MessageModel, MessageQueue
from evenq.protocol.filters import SQL92, TAG
from evenq.protocol.view import MessageView

__all__ = ["PushConsumer"]

log = logging.getLogger(__name__)

# A queue that nobody has pulled for so many seconds, though there is room, is let go and taken anew.
STALE = 120.0
# Queues that are gained within so many seconds share one ramp-up.
GAINED_TOGETHER_S = 0.5
RETRIES = 16
# in order, a message is tried until it succeeds, unless told otherwise
RETRIES_IN_ORDER = (1 << 31) - 1


class PushConsumer:
    """A member of a consumer group that is handed its messages.

    ================ =========================================================================
    ``strategy``     how the queues are divided: a name, a strategy, or a function
    ``instance``     this member's name; with it the client id is the same after a restart
    ``begin``        where a new group begins: ``"last"``, ``"first"`` or a datetime
    ``model``        ``CLUSTERING``, or ``BROADCASTING``: every member gets every message
    ``batch``        at most so many messages in one call of the handler
    ``concurrency``  so many calls of the handler at a time
    ``max_retries``  redeliveries of a message before it becomes a dead letter; None, or -1 as
                     in Java, for 16, in order without end
    ``ramp_up``      seconds after which queues that were gained may have all calls of the handler at a
                     time: they begin with one, and get one more at a time; 0 for all at once
    ``suspend``      in order, seconds that a queue pauses after a failure
    ``offsets_in``   where a broadcasting member keeps its offsets, under its client id: give
                     ``instance``, or it will not find them again
    ``trace``        tell the trace topic, or the one named, of every message and what came of it
    ``namespace``    a name that stands before those of the group and all topics on the brokers;
                     a strategy of your own sees topics with it
    ================ =========================================================================

    The handler is a plain function (it runs in a thread) or a coroutine function. It gets a list of messages and
    returns None, or :class:`evenq.Retry` to see them again later, or a list with one of either for each message; an
    exception counts as a retry. A call that takes longer than ``timeouts.consume`` is given up on: its messages come
    again later. In order it is only reported, since nothing of its queue may be delivered before it has ended.
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
        batch: int = 1,
        concurrency: int = 20,
        max_retries: int | None = None,
        ramp_up: float = 3.0,
        suspend: float = 1.0,
        offsets_in: Path | str = DEFAULT_FOLDER,
        trace: bool | str = False,
        namespace: str = "",
        flow_control: FlowControl | None = None,
        credentials: Credentials | None = None,
        tls: TlsLike = None,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("batch", batch), ("concurrency", concurrency)):
            checked_count(name, value)
        self.group = group
        self._namespace = names = Namespace(namespace)
        # inside and on the brokers
        self._wire_group = group = names.wrap(checked_group(group))
        self.model = checked_model(model)
        self._limits = FlowControl() if flow_control is None else checked_flow(flow_control)
        self._batch = batch
        self._lanes = concurrency
        self._max_retries = checked_retries(max_retries)
        self._suspend = checked_seconds("suspend", suspend, may_be_none=False)
        self._ramp_up = checked_seconds("ramp_up", ramp_up)
        # when queues were gained last, and the calls that they may have
        self._gained: tuple[float, RampUp] | None = None
        self._clock = clock
        self._session = session = Session(
            namesrv, instance=instance, timeouts=timeouts, intervals=intervals, credentials=credentials, tls=tls
        )
        self._stats = Stats(clock)
        self._tracer: ConsumeTracer | None = None
        if trace_topic := checked_trace(trace, TRACE_TOPIC):
            self._tracer = ConsumeTracer(session, group, trace_topic)
        self._local: LocalOffsets | None = None
        if self._broadcasting:
            named = instance is not None
            self._local = LocalOffsets(session, group, StartingPoint.of(begin), Path(offsets_in), named=named)
        self._shared_limits = SharedLimits(self._limits, lambda: self._member.holdings)
        self._strategy = strategy
        self._member = Member(
            session,
            group,
            strategy=names.wrap_strategy(strategy),
            begin=begin,
            hold=self._hold,
            started=self._begin_queue,
            ended=self._shared_limits.divide_soon,
            resumed=self._arrived,
            broadcasting=self._broadcasting,
            offsets=self._local,
            shown=names.unwrap,
        )
        self._watch = Watch(session, names)
        self._member.rebalancer.on_plan.append(self._watch.planned)
        self._reader = QueueReader(session, group, self._member.subscription, self._arrived, self._stats, clock=clock)
        self._answers = Answers(
            session,
            group,
            holdings=lambda: self._member.holdings,
            subscriptions=lambda: self._member.subscriptions,
            settings=self._settings,
            reset=self._reset,
            stats=self._stats,
            direct=self._direct,
            clock=clock,
        )
        self._orderly = False
        self._paused = False
        self._hooks: Hooks[ConsumeEvent] = Hooks("on_consume")
        self._calls: Calls | None = None
        self._dispatcher: Dispatcher | Crew | None = None
        self._stopping = asyncio.Event()
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
        """The queues that this member holds now."""
        return self._namespace.unwrap_queues(self._member.queues)

    @property
    def blocked(self) -> int:
        """How many calls of the handler have been running for more than a minute."""
        return self._calls.slow if self._calls is not None else 0

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> None:
        """Add a topic: all of it, messages with certain tags (``"paid || refunded"``), or what an SQL92 condition
        on properties picks (``sql="total > 100"``)."""
        self._closing.check_open("consumer")
        self._member.subscribe(self._namespace.wrap(checked_topic(topic)), sql or expression, SQL92 if sql else TAG)

    def unsubscribe(self, topic: str) -> None:
        """Take a topic away: its queues are let go as in a rebalance, when running calls of the handler have ended."""
        self._member.unsubscribe(self._namespace.wrap(checked_topic(topic)))

    def on_rebalance(self, listener: Callable[[Plan], None]) -> None:
        """Call ``listener`` with every plan (lose, keep, gain) before it is carried out."""
        checked_callable("listener", listener)
        self._member.rebalancer.on_plan.append(self._namespace.wrap_plan_listener(listener))

    def on_assignment(self, listener: AssignmentListener) -> None:
        """Call ``listener(topic, all its queues, mine)`` whenever this member's share of a topic changes; the group's
        retry topic is one of them."""
        self._watch.on_assignment(listener)

    def on_consume(self, hook: Callable[[ConsumeEvent], None]) -> None:
        """Call ``hook`` when a call of the handler has ended, with the messages, what becomes of them, and the time
        that it took. The hook runs in the event loop: it must not block."""
        self._hooks.add(hook)

    async def start(self, handler: Handler, *, orderly: bool = False) -> None:
        """Join the group and begin. Returns when the brokers know of this member.

        ``orderly``: the messages of a queue one after the other, and none of them before the last one is consumed.
        """
        session = self._session
        self._closing.check_open("consumer")
        if self._calls is not None:
            raise StateError("this consumer runs already: one handler each")
        self._calls = Calls(
            handler,
            self.group,
            timeout=session.timeouts.consume,
            stats=self._stats,
            tracer=self._tracer,
            in_order=orderly,
            hooks=self._hooks,
            clock=self._clock,
        )
        self._orderly = orderly
        if orderly:
            self._member.in_order()
        delivery = self._delivery(self._calls, orderly)
        if self._calls.in_threads and not isinstance(delivery, OrderlyDelivery):
            self._dispatcher = Crew(delivery, self._lanes, self._batch)
        else:
            self._dispatcher = Dispatcher(delivery, self._lanes, self._batch)
        self._dispatcher.start()
        self._answers.serve()
        session.start()
        self._watch.start()
        await self._member.join()
        # it may have been closed meanwhile, by another thread or task
        self._closing.check_open("consumer")
        session.spawn(session.repeat(self._calls.wait_and_look, "check of running handlers"))
        session.spawn(
            session.every(session.intervals.rebalance, self._retake_stale, "check of queues that stand still")
        )
        if self._local is not None:
            session.spawn(session.every(session.intervals.commit, self._local.write, "writing of local offsets"))
        if self._tracer is not None:
            session.spawn(session.every(FLUSH_EVERY, self._tracer.flush, "sending of the trace"))

    async def run(self, handler: Handler, *, orderly: bool = False) -> None:
        """Consume until :meth:`stop`, then hand over properly: drain, commit, unlock, leave.

        SIGTERM ends it in the same way, unless the program handles that signal itself.
        """
        loop = asyncio.get_running_loop()

        def stop() -> None:
            # wakes the loop, which may be waiting
            loop.call_soon_threadsafe(self.stop)

        with sigterm_calls(stop):
            await self.start(handler, orderly=orderly)
            try:
                await self._stopping.wait()
            finally:
                await self.close()

    def suspend(self) -> None:
        """Hand out nothing more until :meth:`resume`. Running calls end, and the queues stay this member's."""
        self._pause(True)

    def resume(self) -> None:
        self._pause(False)
        for holding in self._member.holdings:
            self._arrived(holding)

    def stop(self) -> None:
        """End :meth:`run`. May be called from a handler that is a coroutine function."""
        self._stopping.set()

    async def close(self) -> None:
        """Hand everything over and leave the group. Safe to call twice: both calls return at the end.

        A close that is cancelled does not wait for running calls of the handler, and closes the rest.
        """
        self._stopping.set()
        steps: list[Callable[[], Awaitable[object]]] = []
        if self._calls is not None:
            steps += [self._member.leave, self._stop_calls]
            if self._local is not None:
                steps.append(self._local.write)
            if self._tracer is not None:
                steps.append(self._tracer.flush)
        await self._closing.run(*steps, self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _stop_calls(self) -> None:
        try:
            if self._dispatcher is not None:
                await self._dispatcher.stop()
        finally:
            if self._calls is not None:
                self._calls.close()

    @property
    def _broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    def _delivery(self, calls: Calls, orderly: bool) -> ConcurrentDelivery | BroadcastDelivery | OrderlyDelivery:
        limit = self._max_retries
        if orderly:
            give_back = GiveBack(self._session, self._wire_group, RETRIES_IN_ORDER if limit is None else limit)
            return OrderlyDelivery(calls, give_back, suspend=self._suspend, namespace=self._namespace)
        if self._broadcasting:
            return BroadcastDelivery(calls, self._namespace)
        give_back = GiveBack(self._session, self._wire_group, RETRIES if limit is None else limit)
        return ConcurrentDelivery(self._session, calls, give_back, self._namespace)

    def _hold(self, queue: MessageQueue, start: Start) -> Holding:
        holding = Holding(queue, start.offset, self._limits, stored=start.is_stored)
        holding.paused = self._paused
        if self._ramp_up and self._lanes > 1 and not self._orderly:
            holding.ramp_up = self._ramp_up_now()
        return holding

    def _ramp_up_now(self) -> RampUp:
        """The one that is shared by all queues gained in this moment."""
        loop = asyncio.get_running_loop()
        if self._gained is None or loop.time() - self._gained[0] > GAINED_TOGETHER_S:
            ramp = RampUp(self._lanes, again=self._arrived)
            self._gained = loop.time(), ramp
            self._widen_later(ramp)
        return self._gained[1]

    def _begin_queue(self, holding: Holding) -> None:
        # before the first pull, whose task begins after this
        self._shared_limits.divide_soon()
        self._reader.start(holding)

    def _widen_later(self, ramp: RampUp) -> None:
        def widen() -> None:
            ramp.widen()
            if not ramp.over:
                self._widen_later(ramp)

        asyncio.get_running_loop().call_later(self._ramp_up / (self._lanes - 1), widen)

    def _pause(self, paused: bool) -> None:
        self._paused = paused
        for holding in self._member.holdings:
            holding.paused = paused

    async def _reset(self, holding: Holding, offset: int) -> None:
        if holding.dropped:
            # it was let go meanwhile; whoever holds the queue next begins where the group is then
            return
        if holding.reader is not None:
            holding.reader.cancel()
        holding.reset(offset)
        self._reader.start(holding)
        await self._member.commit(holding)

    async def _direct(self, message: MessageView) -> Outcome:
        assert self._calls is not None
        [shown] = self._namespace.unwrap_messages([as_sent(message)])
        return await self._calls.direct(shown)

    def _settings(self) -> dict[str, str]:
        return {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if self._orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(self._lanes),
            **self._member.settings,
            "consumeMessageBatchMaxSize": str(self._batch),
            "consumeTimeout": str(round(self._session.timeouts.consume / 60)),
            "maxReconsumeTimes": str(-1 if self._max_retries is None else self._max_retries),
            "suspendCurrentQueueTimeMillis": str(round(self._suspend * 1000)),
        }

    def _arrived(self, holding: Holding) -> None:
        if self._dispatcher is not None:
            self._dispatcher.announce(holding)

    async def _retake_stale(self) -> None:
        now = self._clock()
        stale = [
            holding.queue
            for holding in self._member.holdings
            if holding.room.is_set() and now - holding.pulled_at > STALE
        ]
        if stale:
            log.error("nobody has pulled %s for %.0f s: taken anew", ", ".join(map(str, stale)), STALE)
            self._member.retake(stale)
