"""A member of a consumer group: its subscriptions, heartbeat, share of the queues, and commits.

What is done with the messages of a held queue is up to the consumer that owns the member.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Generic

from evenq.balance import StrategyLike
from evenq.client.agreement import LOCKS, MODEL, STRATEGY, decode_queues, describe, encode_queues
from evenq.client.group.differing import DifferenceWatch, ask_members
from evenq.client.group.doubles import DoubleWatch
from evenq.client.group.handover import HandoverLocks, Locks, NoLocks
from evenq.client.group.held import H
from evenq.client.group.offsets import BrokerOffsets, Offsets, commit, commit_all
from evenq.client.group.ownership import Ownership
from evenq.client.group.rebalance import Rebalancer
from evenq.client.group.shares import RETRY_PREFIX, STICKY, ClaimedShares, ComputedShares, Shares, WholeShares
from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start
from evenq.client.net.routes import Routes
from evenq.client.net.session import Session
from evenq.errors import ArgumentError, RemoteError, StateError
from evenq.model import MessageModel, MessageQueue
from evenq.protocol.bodies import ConsumerData, RunningInfo, Subscription
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.filters import TAG, subscription

__all__ = ["Member", "checked_group", "look_for_brokers"]

log = logging.getLogger(__name__)

# Commits of a queue are at least so many seconds apart, and more where a member holds many queues.
COMMIT_AT_MOST_EVERY = 0.1
COMMITS_PER_SECOND = 250
# While no route has the master of a broker, its route is asked for so often: members lock at the slave until they know
# that the master is back, and those that know it lock there. So are routes that have lost a broker: its queues have no
# reader until it is found again.
LOOK_S = 2.0
# how often locks are offered again to brokers that did not take them back
RETURN_S = 1.0


def checked_group(group: str) -> str:
    if not isinstance(group, str) or group.split() != [group]:
        raise ArgumentError("group", group, "give the name of a consumer group, without spaces")
    return group


async def look_for_brokers(routes: Routes) -> None:
    """Ask for a route of each broker whose master no route has, and for routes that have lost a broker."""
    masters = routes.masters()
    waiting = {broker: route.topic for route in routes.all() for broker in route.addresses if broker not in masters}
    for topic in {*waiting.values(), *routes.shrunk()}:
        # what cannot be asked now is asked for again soon
        with suppress(RemoteError):
            await routes.refresh(topic)


class Member(Generic[H]):
    """One member. ``hold`` makes what a queue is kept in; ``started`` is called with every queue that it comes to hold,
    ``ended`` when one was let go, ``resumed`` when messages of a queue may be handed out again after its lease did not
    count.

    ``pushed`` members are handed their messages and give back what failed; the others ask for them. ``offsets`` are
    the brokers' unless given; ``broadcasting`` members take every queue. ``shown`` is what the user calls a topic.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        strategy: StrategyLike,
        begin: str | datetime,
        hold: Callable[[MessageQueue, Start], H],
        started: Callable[[H], None],
        ended: Callable[[], None] = lambda: None,
        resumed: Callable[[H], None] = lambda held: None,
        pushed: bool = True,
        broadcasting: bool = False,
        offsets: Offsets | None = None,
        shown: Callable[[str], str] = str,
    ) -> None:
        self.session = session
        self.group = checked_group(group)
        self._pushed = pushed
        self._broadcasting = broadcasting
        self._starting = StartingPoint.of(begin)
        self._offsets = offsets or BrokerOffsets(session, group, self._starting)
        self._hold = hold
        self._shown = shown
        self._ended_hook = ended
        self._subscriptions: dict[str, Subscription] = {}
        self._ended: dict[str, Subscription] = {}
        self._joined = False
        self._locks: Locks = NoLocks()
        if not broadcasting:
            self._locks = HandoverLocks(
                session.remote,
                group,
                session.client_id,
                # a slave grants locks, too
                session.routes.first_replica_of,
                session.connections.get,
                others=self._locks_of_others,
                outages=session.outages,
            )
        self._ownership = Ownership(
            session,
            self._locks,
            self._begin,
            self.commit,
            started=started,
            ended=self._queue_ended,
            resumed=resumed,
            on_leave=lambda plan: self.rebalancer.announce(plan),
        )
        self._strategy = strategy
        self._shares = self._shares_by(strategy)
        self.rebalancer = Rebalancer(session, group, self._shares, lambda: list(self._subscriptions), self._ownership)
        self.doubles = DoubleWatch(session, group)
        self.differences = DifferenceWatch(
            session, group, lambda: RunningInfo(properties=self.settings, subscription_set=self.subscriptions)
        )
        if pushed and not broadcasting:
            self.subscribe(RETRY_PREFIX + group, "*")

    @property
    def strategy(self) -> StrategyLike:
        """How the queues are divided; may be set until this member joins."""
        return self._strategy

    @strategy.setter
    def strategy(self, strategy: StrategyLike) -> None:
        if self._joined:
            raise StateError(f"this member of group {self.group} divides queues already: set the strategy before start")
        self._shares = self.rebalancer.shares = self._shares_by(strategy)
        self._strategy = strategy

    @property
    def settings(self) -> dict[str, str]:
        """What this member tells: what all members must have in common, and its locks."""
        told = {MODEL: self._model.value}
        if isinstance(self._locks, HandoverLocks):
            told |= {STRATEGY: describe(self._strategy), LOCKS: encode_queues(self._locks.owned)}
        return told

    @property
    def _model(self) -> MessageModel:
        return MessageModel.BROADCASTING if self._broadcasting else MessageModel.CLUSTERING

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held now, in Java's order, without those of the group's retry topic."""
        return [queue for queue in self._ownership.queues if not queue.topic.startswith(RETRY_PREFIX)]

    @property
    def holdings(self) -> list[H]:
        return self._ownership.holdings

    @property
    def settled(self) -> bool:
        """Whether all that should be held is."""
        return self.rebalancer.looked and self._shares.settled and not self._ownership.wanted

    def subscribe(self, topic: str, expression: str, expression_type: str = TAG) -> None:
        self._subscriptions[topic] = subscription(
            topic, expression, version=time.time_ns() // 1_000_000, expression_type=expression_type
        )
        if self._joined:
            self.session.spawn(self._tell(topic))

    def unsubscribe(self, topic: str) -> None:
        """Let the topic's queues go, and tell the brokers."""
        subscribed = [each for each in self._subscriptions if not each.startswith(RETRY_PREFIX)]
        if topic not in subscribed:
            names = ", ".join(map(self._shown, subscribed)) or "none"
            raise ArgumentError("topic", self._shown(topic), f"not subscribed to; give one of {names}")
        self._ended[topic] = self._subscriptions.pop(topic)
        if self._joined:
            self.session.spawn(self._tell(topic))

    @property
    def subscriptions(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    def subscription(self, topic: str) -> Subscription:
        """How the topic is subscribed to, or was: what is left of its queues is read on until they are let go."""
        return self._subscriptions.get(topic) or self._ended[topic]

    def in_order(self) -> None:
        """Consume in order: a queue is read under the broker's lock of the group's own name, and never without it."""
        if isinstance(self._locks, HandoverLocks):
            self._locks.in_order(self.session.routes.master_of)
            self._ownership.in_order = True

    async def join(self) -> None:
        """Tell the brokers, and begin to rebalance. Returns when every broker that could be reached knows."""
        if all(topic.startswith(RETRY_PREFIX) for topic in self._subscriptions):
            raise StateError("no topic is subscribed: call subscribe(topic) first")
        self._joined = True
        session = self.session
        session.consuming(self._heartbeat)
        session.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        session.routes.on_change.append(lambda old, new: self.rebalancer.soon())
        for topic in list(self._subscriptions):
            await self._find_route(topic)
        await session.beat()
        session.spawn(session.repeat(self._wait_and_commit, f"commits of group {self.group}"))
        session.spawn(session.every(session.intervals.renew_locks, self._renew, f"lock renewal of group {self.group}"))
        # another broker may have the locks from now on
        session.routes.on_change.append(lambda old, new: self._ownership.renew_soon())
        session.on_connection.append(lambda address: self._ownership.renew_soon())
        session.spawn(session.repeat(self._ownership.keep_leases, f"keeping of locks of group {self.group}"))
        if isinstance(self._locks, HandoverLocks):
            look = partial(look_for_brokers, session.routes)
            session.spawn(session.every(LOOK_S, look, f"search for brokers of group {self.group}"))
            owed = f"return of locks of group {self.group}"
            session.spawn(session.every(RETURN_S, self._locks.release_owed, owed))
        session.spawn(self.doubles.watch())
        session.spawn(self.differences.watch())
        self.rebalancer.start()

    async def leave(self) -> None:
        """Let everything go, properly: nothing is handed out any more, what runs ends, offsets are committed."""
        await self.rebalancer.stop()
        await self._ownership.give_up_all()
        await self._shares.give_up()

    def retake(self, queues: Iterable[MessageQueue]) -> None:
        """Let queues go, properly, and take them anew."""
        self._ownership.leave(queues)

    async def commit(self, holding: H) -> None:
        """Store how far the queue is, and wait for the answer. Never backwards."""
        await commit(self._offsets, holding)

    async def commit_all(self) -> None:
        await commit_all(self._offsets, self._ownership.holdings, self.group, self.session.outages)

    def _shares_by(self, strategy: StrategyLike) -> Shares:
        if not isinstance(self._locks, HandoverLocks):
            return WholeShares()
        if strategy != STICKY:
            return ComputedShares(strategy, self.group, self.session.client_id)
        owner = self._ownership
        return ClaimedShares(
            self._locks, self.group, self.session.client_id, owner.leave, lambda: owner.leaving, lambda: owner.queues
        )

    async def _tell(self, topic: str) -> None:
        """The brokers learn of a subscription that is new or has ended, those that have its topic among them."""
        if topic in self._subscriptions:
            await self._find_route(topic)
        await self.session.beat()
        self.rebalancer.soon()
        self.differences.soon()

    async def _find_route(self, topic: str) -> None:
        try:
            await self.session.routes.get(topic)
        except RemoteError as error:
            level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
            log.log(level, "topic %s cannot be read yet: %s", topic, error)

    async def _begin(self, queues: Collection[MessageQueue]) -> list[H]:
        """The holdings of queues that are ours now. One whose offset cannot be read is left out, to be tried again."""
        # in order, Java members too take the lock and let it go when they have committed
        until_still = self.rebalancer.mixed and not self._ownership.in_order
        starts = await self._offsets.find(queues, until_still=until_still)
        return [self._hold(queue, start) for queue, start in starts.items()]

    async def _locks_of_others(self) -> set[MessageQueue] | None:
        """What all other members say that they have locked; None where one of them, or a broker, does not tell."""
        locks: set[MessageQueue] = set()
        told = await ask_members(self.session, self.group)
        if told is None:
            return None
        for info in told.values():
            if info is None or LOCKS not in info.properties:
                return None
            locks |= decode_queues(info.properties[LOCKS])
        return locks

    def _queue_ended(self) -> None:
        self._ended_hook()
        self.rebalancer.soon()

    async def _renew(self) -> None:
        self._ownership.renew_soon()
        await self._shares.renew()

    async def _wait_and_commit(self) -> None:
        """What was consumed and is not committed yet comes twice after a kill, so the time between is short."""
        gentle = len(self._ownership.queues) / COMMITS_PER_SECOND
        await asyncio.sleep(min(self.session.intervals.commit, max(COMMIT_AT_MOST_EVERY, gentle)))
        await self.commit_all()

    async def _members_changed(self, command: Command) -> None:
        self.rebalancer.soon()
        self.differences.soon()
        if self.rebalancer.mixed:
            # a Java member reads the offset of a queue at once, whether its last holder has let it go or not
            await self.commit_all()

    def _heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY" if self._pushed else "CONSUME_ACTIVELY",
            message_model=self._model.value,
            consume_from_where=self._starting.where.value,
            subscription_data_set=list(self._subscriptions.values()),
        )
