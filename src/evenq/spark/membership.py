"""A streaming query as a member of its consumer group: which queues are its own, and when it lets them go.

A micro-batch is to the group what a running handler is: a queue that goes to another member is let go when the batch
that reads it has ended and its offset is committed, which is between two batches. The member lives in the loop thread
of the driver's process, where it heartbeats, rebalances and renews locks while Spark does something else.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from evenq.client.consume.answers import Answers
from evenq.client.group.held import Cached, Lease
from evenq.client.group.member import Member
from evenq.client.group.starts import Start
from evenq.client.settings import Timeouts
from evenq.client.sync.facade import Facade, blocking
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.bounds import AtTime, Bound, Place
from evenq.spark.offsets import Progress
from evenq.spark.options import ReadOptions

__all__ = ["GracefulEnd", "Membership", "QueryMember"]

log = logging.getLogger(__name__)

# A batch that reads a queue may take so long. Other members wait 30 s for a queue, and then begin without asking.
LONGEST_BATCH = 24 * 3600.0
# Seconds that a query which ends by itself waits for its share of the queues.
SHARE_PATIENCE = 40.0
LOOK_AGAIN = 0.02


class HeldQueue:
    """One queue of the query. ``position`` is where the next batch begins: all before it is processed."""

    def __init__(self, queue: MessageQueue, start: Start) -> None:
        self.queue = queue
        self.position = start.offset
        # where nothing was stored yet, the start itself must be: whoever comes next would begin elsewhere
        self.committed = start.offset if start.is_stored else -1
        # a query is never reset: its checkpoint says where it is
        self.epoch = 0
        self.committing = asyncio.Lock()
        self.lease = Lease()
        self.pulled_at = self.consumed_at = 0.0
        self.dropped = False
        # where the batch that reads it ends; None while none does
        self._reading: int | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def committable(self) -> int:
        return self.position

    @property
    def in_hand(self) -> int:
        return 0 if self._reading is None else self._reading - self.position

    @property
    def cached(self) -> Cached:
        return Cached(0, self.position, self.position - 1, 0)

    @property
    def readable(self) -> bool:
        return not self.dropped and self.lease.counts()

    def begin(self, stop: int) -> None:
        """A batch reads up to ``stop``."""
        self._reading = stop
        self._idle.clear()

    def end(self) -> None:
        """The batch is done, and so is what it read."""
        if self._reading is not None:
            self.position = self._reading
            self.consumed_at = time.monotonic()
        self.abandon()

    def abandon(self) -> None:
        """Nobody will say what became of the batch: it stays undone."""
        self._reading = None
        self._idle.set()

    def move(self, offset: int) -> None:
        """Begin at ``offset``, which the query is sure about."""
        self.position = offset

    def drop(self) -> None:
        self.dropped = True

    async def drained(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


class QueryMember:
    """The member itself. Lives in one event loop, from ``join`` to ``close``."""

    def __init__(self, options: ReadOptions) -> None:
        connecting = options.connecting
        times = connecting.timeouts
        self._options = options
        self._timeouts = Timeouts(connect=times.connect, request=times.request, pull=times.pull, drain=LONGEST_BATCH)
        self._expression = options.expression
        self._begin = _begin(options.stream_start())
        self._member: Member[HeldQueue] | None = None
        # the queues of the batch that Spark was last given
        self._reading: list[HeldQueue] = []

    async def join(self, topics: Iterable[str]) -> None:
        """Take part in the group. Topics that come up later are added."""
        if self._member is None:
            assert self._options.group is not None
            session = self._options.connecting.session(timeouts=self._timeouts)
            self._member = Member(
                session,
                self._options.group,
                strategy=self._options.strategy,
                begin=self._begin,
                hold=HeldQueue,
                started=lambda held: None,
            )
            self._subscribe(topics)
            Answers(
                session,
                self._options.group,
                holdings=lambda: self._joined.holdings,
                subscriptions=lambda: self._joined.subscriptions,
                settings=lambda: {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY", **self._joined.settings},
                reset=self._stay,
            ).serve()
            session.start()
            await self._member.join()
        else:
            self._subscribe(topics)

    async def settled(self) -> None:
        """Wait until the query has its share of the queues, or is not going to get it soon."""
        member = self._joined
        deadline = time.monotonic() + SHARE_PATIENCE
        while not member.settled and time.monotonic() < deadline:  # noqa: ASYNC110 - a member tells nobody
            await asyncio.sleep(LOOK_AGAIN)

    async def offsets(self, done: Progress) -> dict[MessageQueue, int]:
        """Where the next batch begins, in each queue that is ours now.

        The batch that ended at ``done`` is done: its queues may go to other members. A queue that the checkpoint is
        ahead of, because its last batch was not told to the group, begins where the checkpoint says.
        """
        for held in self._reading:
            held.end()
        self._reading = []
        reached = done.reached
        found: dict[MessageQueue, int] = {}
        for held in self._joined.holdings:
            if held.readable:
                if held.queue in reached and reached[held.queue] > held.position:
                    held.move(reached[held.queue])
                found[held.queue] = held.position
        return found

    async def begin(self, ahead: Progress) -> Progress:
        """Read these ranges; those of queues that are no longer ours are left out."""
        mine = {held.queue: held for held in self._joined.holdings if held.readable}
        kept = [part for part in ahead.ranges if part.queue in mine]
        for part in kept:
            if part.start > mine[part.queue].position:
                # what was lost lies before it
                mine[part.queue].move(part.start)
            if part:
                mine[part.queue].begin(part.stop)
                self._reading.append(mine[part.queue])
        return Progress(tuple(kept))

    async def close(self) -> None:
        """Let everything go and leave the group."""
        for held in self._reading:
            held.abandon()
        if self._member is not None:
            await self._member.leave()
            await self._member.session.close()

    async def _stay(self, held: HeldQueue, offset: int) -> None:
        """An administrator moves the group; but where a query is, its checkpoint says."""
        log.warning(
            "%s is asked to go on at %d and stays at %d: a query goes by its checkpoint; give it a new one for that",
            held.queue,
            offset,
            held.position,
        )

    @property
    def _joined(self) -> Member[HeldQueue]:
        assert self._member is not None, "join comes first"
        return self._member

    def _subscribe(self, topics: Iterable[str]) -> None:
        known = {subscription.topic for subscription in self._joined.subscriptions}
        for topic in topics:
            if topic not in known:
                self._joined.subscribe(topic, *self._expression)


class Membership(Facade[QueryMember]):
    """The same from code that is not asynchronous."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(QueryMember(options))

    join = blocking(QueryMember.join)
    settled = blocking(QueryMember.settled)
    offsets = blocking(QueryMember.offsets)
    begin = blocking(QueryMember.begin)


class GracefulEnd:
    """Lets the end of a query be a proper leave.

    Spark closes its connection to the process that holds the reader, on which the reader is stopped, and a few
    milliseconds later it sends SIGTERM, which would end the process in the midst of that. So the signal begins a stop,
    and while there is one it does nothing. Where somebody else has a say about the signal, and in threads, which may
    not have one, nothing is changed.
    """

    def __init__(self) -> None:
        self._stopping = False
        in_main = threading.current_thread() is threading.main_thread()
        self._in_charge = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._in_charge:
            signal.signal(signal.SIGTERM, self._on_signal)

    def __enter__(self) -> None:
        """The stop begins."""
        self._stopping = True

    def __exit__(self, *error: object) -> None:
        if self._in_charge and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_signal(self, number: int, frame: object) -> None:
        if not self._stopping:
            sys.exit(0)


_WORDS: Mapping[Place, str] = {Place.EARLIEST: "first", Place.GROUP: "first", Place.LATEST: "last"}


def _begin(starting: Bound) -> str | datetime:
    """Where a group that has stored nothing begins."""
    match starting.at:
        case Place():
            return _WORDS[starting.at]
        case AtTime(int() as time):
            return datetime.fromtimestamp(time / 1000, UTC)
        case _:
            raise ArgumentError(starting.option, starting.shown, "with group.join give one place for all queues")
