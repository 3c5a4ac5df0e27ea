"""Which queues are ours, step by step: wanted, held, leaving, gone.

::

    (not ours) ──gain──▶ wanted ──locked, offset read──▶ held ──lose──▶ leaving ──committed, unlocked──▶ (not ours)
                            └────────lose────────▶ (not ours)

A queue is read only while it is held. The lock is taken before the offset is read, and given back after the offset
is committed, so a queue that changes hands between two members of evenq is read by one of them at a time.

While the connection to the broker is lost, the lease of a held queue does not count (:class:`Lease`): nothing of the
queue is handed out or committed. The locks are taken anew first thing on the next connection. A queue whose lock is
refused then is released without a commit, since its new holder may be further on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from functools import partial
from typing import Generic

from evenq.balance import Plan, plan
from evenq.client.group.handover import Locks
from evenq.client.group.held import H
from evenq.client.net.remote import by_broker
from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.supervision import Supervisor

__all__ = ["Ownership"]

log = logging.getLogger(__name__)

# How often a lock that another member still has is asked for again, and how long at most.
CLAIM_PAUSE = 0.05
CLAIM_LIMIT = 30.0
# The only member of a group waits for no living one. It takes orphaned locks under their second name before that.
ALONE_LIMIT = 5.0
# In order, locks that have been another member's for so many seconds are reported: nothing else says why queues wait.
WAIT_REPORTED_S = 5.0
# Queues that are left within so many seconds are unlocked by one request.
UNLOCK_TOGETHER = 0.003
# Locks of a broker that did not answer are asked for again after so many seconds, or when a connection is made.
RENEW_AGAIN_S = 0.2
# Locks that are temporary are asked for under their right name so often.
EXCHANGE_S = 1.0


class Ownership(Generic[H]):
    """Carries plans out.

    ``begin`` makes the holdings of queues that are locked, those that it can. ``started`` is called with each of them,
    ``resumed`` when its lease counts again after it did not, and ``ended`` when one is gone. ``on_leave`` hears of
    queues that are let go without a plan, one topic at a time.
    """

    def __init__(
        self,
        session: Session,
        locks: Locks,
        begin: Callable[[Collection[MessageQueue]], Awaitable[Collection[H]]],
        commit: Callable[[H], Awaitable[None]],
        *,
        started: Callable[[H], None],
        ended: Callable[[], None],
        resumed: Callable[[H], None] = lambda holding: None,
        on_leave: Callable[[Plan], None] = lambda plan: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._locks = locks
        self._begin = begin
        self._commit = commit
        self._started = started
        self._ended = ended
        self._resumed = resumed
        self._on_leave = on_leave
        self._clock = clock
        # wanted since when
        self._wanted: dict[MessageQueue, float] = {}
        # in order: wanted queues whose lock another member has, since when, and those of which this was reported
        self._refused: dict[MessageQueue, float] = {}
        self._reported: set[MessageQueue] = set()
        self._held: dict[MessageQueue, H] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._claiming: asyncio.Task[None] | None = None
        self._alone = False
        self._closing = asyncio.Event()
        # whether a queue without a lock must not be read at all
        self.in_order = False
        # by broker: queues that have been left and are about to be unlocked, and the event that says so
        self._unlocking: dict[str, tuple[list[MessageQueue], asyncio.Event]] = {}
        # a broker serves requests side by side: one that keeps a lock must not overtake the one that gives it back.
        # Each broker has its own turns, so that one that does not answer holds up its own queues only.
        self._at_broker: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # set when leases may have stopped to count, or may be renewed sooner than at the next interval
        self._in_doubt = asyncio.Event()
        # the same by broker, and the tasks that renew the locks there until it has told of all
        self._doubts: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._renewing: dict[str, asyncio.Task[None]] = {}

    @property
    def holdings(self) -> list[H]:
        return list(self._held.values())

    @property
    def queues(self) -> list[MessageQueue]:
        """What is held now, in Java's order."""
        return sorted(self._held)

    @property
    def topics(self) -> set[str]:
        """The topics of all that is held or wanted."""
        return {queue.topic for queue in (*self._held, *self._wanted)}

    def held(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in (*self._held, *self._wanted) if queue.topic == topic}

    def carry_out(self, plan: Plan) -> None:
        """Begin to release and to claim queues. A queue that is held already is not gained again."""
        for queue in plan.lose:
            self._wanted.pop(queue, None)
            self._refused.pop(queue, None)
            self._reported.discard(queue)
            holding = self._held.pop(queue, None)
            if holding is not None:
                self._leaving[queue] = self._session.spawn(self._leave(holding))
        now = self._clock()
        for queue in plan.gain:
            # A queue that is held has its reader: a second one would deliver everything again. One that is still
            # leaving is looked at again when it is gone.
            if queue not in self._held and queue not in self._leaving:
                self._wanted.setdefault(queue, now)
        if self._wanted and (self._claiming is None or self._claiming.done()):
            self._claiming = self._session.spawn(self._claim())

    @property
    def wanted(self) -> list[MessageQueue]:
        """What is to be held and is not yet."""
        return list(self._wanted)

    @property
    def leaving(self) -> list[MessageQueue]:
        """What was lost and is not let go yet."""
        return list(self._leaving)

    def leave(self, queues: Iterable[MessageQueue]) -> None:
        """Let queues go, by no plan: whoever hears of plans hears of this too."""
        gone = set(queues)
        for topic in sorted({queue.topic for queue in gone}):
            held = self.held(topic)
            if todo := plan(held, held - gone):
                self._on_leave(todo)
                self.carry_out(todo)

    def members_are(self, members: list[str], gone: Iterable[str]) -> None:
        """A dead member cannot give its locks back, so the others do it in its name: each of them, since the only one
        that does it may die before."""
        self._alone = members == [self._session.client_id]
        self._locks.alive(members)
        if gone:
            everything = [queue for route in self._session.routes.all() for queue in route.readable]
            for owner in gone:
                self._session.spawn(self._locks.release(everything, owner=owner))

    def renew_soon(self) -> None:
        """The interval is over, a connection to a broker was made or lost, or another broker has the locks."""
        self._in_doubt.set()

    async def keep_leases(self) -> None:
        """Wait until locks are to be renewed, or one is a temporary one, then begin with it at every broker. A task
        repeats this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXCHANGE_S if self._locks.temporary else None):
                await self._in_doubt.wait()
        self._in_doubt.clear()
        for broker in by_broker([*self._held, *self._leaving]):
            self._doubts[broker].set()
            task = self._renewing.get(broker)
            if task is None or task.done():
                self._renewing[broker] = self._session.spawn(self._renew_until_told(broker))

    async def _renew_at(self, broker: str) -> bool:
        """Keep the locks of what we hold or are still letting go. Queues that another member has locked are left.
        False where the broker did not tell of every lock."""
        async with self._at_broker[broker]:
            asked = [queue for queue in (*self._held, *self._leaving) if queue.broker == broker]
            kept, refused = await self._locks.renew(asked)
        lost = [queue for queue in asked if queue in self._held and self._held[queue].lease.lost]
        if lost:
            log.warning(
                "another member has the lock on %s: released without a commit, messages in hand may come twice",
                ", ".join(map(str, sorted(lost))),
            )
            # they are claimed anew, and begin at the offset where the other member will be then
            self.leave(lost)
        return len(kept) + len(refused) == len(asked)

    async def _renew_until_told(self, broker: str) -> None:
        """Renew the locks at a broker until it has told of all of them, and again where doubts arose meanwhile."""
        doubt = self._doubts[broker]
        supervisor = Supervisor(f"renewal of locks of client {self._session.client_id} on {broker}")
        while doubt.is_set():
            doubt.clear()
            pause = RENEW_AGAIN_S
            try:
                told = await self._renew_at(broker)
            except Exception as error:  # noqa: BLE001 - queues stand still until their locks are renewed
                told, pause = False, supervisor.failed(error)
            else:
                supervisor.succeeded()
            if not told:
                # it is away
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await doubt.wait()
                doubt.set()

    async def give_up_all(self) -> None:
        """Let everything go, properly, and wait for it."""
        self._wanted.clear()
        self._closing.set()
        if self._claiming is not None:
            # locks that are granted in this moment are given back before it ends
            await asyncio.wait([self._claiming])
        self.carry_out(Plan(lose=tuple(self.queues)))
        await asyncio.gather(*self._leaving.values())

    async def _claim(self) -> None:
        """Ask for the locks of all wanted queues until each is held or no longer wanted."""
        supervisor = Supervisor(f"claiming of queues by client {self._session.client_id}")
        while self._wanted:
            pause = CLAIM_PAUSE
            try:
                asked = dict(self._wanted)
                granted = await self._locks.take(asked)
                if self.in_order:
                    self._report_waits(asked.keys() - granted)
                await self._take(granted | self._late(asked, granted))
            except Exception as error:  # noqa: BLE001 - the queues stay wanted, so the claim must go on
                pause = supervisor.failed(error)
            else:
                supervisor.succeeded()
            if self._wanted:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._closing.wait()

    def _report_waits(self, asked: Set[MessageQueue]) -> None:
        """Say once of each of these queues that another member has its lock, if that has lasted."""
        now = self._clock()
        since = {queue: self._refused.get(queue, now) for queue in asked & (self._refused.keys() | self._locks.refused)}
        self._refused = {queue: at for queue, at in since.items() if queue in self._wanted}
        self._reported &= self._refused.keys()
        late = {queue for queue, at in self._refused.items() if now - at >= WAIT_REPORTED_S} - self._reported
        for queues in by_broker(sorted(late)).values():
            log.warning(
                "waiting for the locks on %s, which another member has or has left behind; those of a dead member end "
                "after a minute at most",
                ", ".join(map(str, queues)),
            )
        self._reported |= late

    def _late(self, asked: Mapping[MessageQueue, float], granted: set[MessageQueue]) -> set[MessageQueue]:
        """The queues whose locks were waited for long enough: better twice than not at all, unless in order."""
        if self.in_order:
            return set()
        limit = ALONE_LIMIT if self._alone else CLAIM_LIMIT
        late = {queue for queue, since in asked.items() if self._clock() - since > limit} - granted
        for queue in late:
            log.warning("%s is still locked after %.0f s; beginning anyway, messages may come twice", queue, limit)
        return late

    async def _take(self, locked: set[MessageQueue]) -> None:
        """Begin with the queues whose locks are ours; what was lost meanwhile is let go again."""
        for holding in await self._begin([queue for queue in locked if queue in self._wanted]):
            if self._wanted.pop(holding.queue, None) is not None:
                holding.lease = self._locks.lease(holding.queue)
                holding.lease.on_resumed = partial(self._lease_resumed, holding)
                self._held[holding.queue] = holding
                self._started(holding)
                if self._locks.temporary or not holding.lease.counts():
                    # the lock is to be exchanged soon, or the connection was lost since
                    self._in_doubt.set()
        await self._locks.release(locked - self._held.keys() - self._wanted.keys())

    def _lease_resumed(self, holding: H) -> None:
        """Whoever renewed the lock: what waits in the queue may be handed out again."""
        if self._held.get(holding.queue) is holding:
            self._resumed(holding)

    async def _leave(self, holding: H) -> None:
        holding.drop()
        if not await self._drained(holding):
            log.warning(
                "%s is let go while %d messages are still being consumed after %.0f s: they will be seen twice",
                holding.queue,
                holding.in_hand,
                self._session.timeouts.drain,
            )
        try:
            if await self._is_ours(holding):
                # else another member may be further on by now
                await self._commit(holding)
        except RemoteError as error:
            log.warning("the last offset of %s was not committed: %s", holding.queue, error)
        except Exception:
            # the queue must be unlocked nevertheless, or nobody can have it
            log.exception("the last offset of %s was not committed", holding.queue)
        await self._unlock(holding.queue)
        self._ended()

    async def _drained(self, holding: H) -> bool:
        """Wait for running calls of the handler; False when they took longer than the timeout.

        In order there is none, except at the end of this member: the next holder would handle the same messages at the
        same time. Meanwhile the lock is renewed.
        """
        drain, waits = self._session.timeouts.drain, False
        while not await holding.drained(drain):
            if not self.in_order or self._closing.is_set():
                return False
            if not waits:
                log.warning(
                    "%s is let go when the running call of the handler ends (%g s so far)", holding.queue, drain
                )
            waits = True
        return True

    async def _is_ours(self, holding: H) -> bool:
        """Whether the lease counts. One whose connection was lost is renewed first."""
        if not holding.lease.counts() and not holding.lease.lost:
            async with self._at_broker[holding.queue.broker]:
                await self._locks.renew([holding.queue])
        return holding.lease.counts()

    async def _unlock(self, queue: MessageQueue) -> None:
        """Unlock, together with others of the broker that end at about the same time, by one request."""
        broker = queue.broker
        if (waiting := self._unlocking.get(broker)) is not None:
            queues, done = waiting
            queues.append(queue)
            await done.wait()
            return
        queues, done = self._unlocking[broker] = [queue], asyncio.Event()
        await asyncio.sleep(UNLOCK_TOGETHER)
        del self._unlocking[broker]
        async with self._at_broker[broker]:
            try:
                await self._locks.release(queues)
            finally:
                for gone in queues:
                    self._leaving.pop(gone, None)
                done.set()
