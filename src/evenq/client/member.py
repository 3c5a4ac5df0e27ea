"""A member of a consumer group: its subscriptions, heartbeat, share of the queues, and commits.

What is done with the messages of a held queue is up to the consumer that owns the member.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from datetime import datetime

from evenq.balance import StrategyLike
from evenq.client.handover import HandoverLocks
from evenq.client.holding import Holding
from evenq.client.ownership import Ownership
from evenq.client.rebalance import Rebalancer
from evenq.client.session import Session
from evenq.client.settings import FlowControl
from evenq.client.shares import RETRY_PREFIX, STICKY, ClaimedShares, ComputedShares, Shares
from evenq.client.starting import StartingPoint
from evenq.client.starts import Starts
from evenq.errors import ArgumentError, RemoteError, StateError
from evenq.model import MessageModel, MessageQueue
from evenq.protocol.bodies import ConsumerData, Subscription
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.filters import subscription

__all__ = ["Member"]

log = logging.getLogger(__name__)

# Commits of a queue are at least so many seconds apart, and more where a member holds many queues.
COMMIT_AT_MOST_EVERY = 0.1
COMMITS_PER_SECOND = 250


class Member:
    """One member. ``started`` is called with every queue that it comes to hold."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        strategy: StrategyLike,
        begin: str | datetime,
        limits: FlowControl,
        started: Callable[[Holding], None],
    ) -> None:
        if not group or group.split() != [group]:
            raise ArgumentError("group", group, "give the name of a consumer group, without spaces")
        self.session = session
        self.group = group
        self._starting = StartingPoint.of(begin)
        self._starts = Starts(session, group, self._starting)
        self._limits = limits
        self._subscriptions: dict[str, Subscription] = {}
        locks = HandoverLocks(session.remote, group, session.client_id, session.routes.master_of)
        self._ownership = owner = Ownership(
            session, locks, self._begin, self.commit, started=started, ended=lambda: self.rebalancer.soon()
        )
        self._shares: Shares
        if strategy == STICKY:
            self._shares = ClaimedShares(
                locks, group, session.client_id, owner.leave, lambda: owner.leaving, lambda: owner.queues
            )
        else:
            self._shares = ComputedShares(strategy, group, session.client_id)
        self.rebalancer = Rebalancer(session, group, self._shares, lambda: list(self._subscriptions), owner)
        self.subscribe(RETRY_PREFIX + group, "*")

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held now, in Java's order, without those of the group's retry topic."""
        return [queue for queue in self._ownership.queues if not queue.topic.startswith(RETRY_PREFIX)]

    def subscribe(self, topic: str, expression: str) -> None:
        self._subscriptions[topic] = subscription(topic, expression, version=time.time_ns() // 1_000_000)
        self.rebalancer.soon()

    def subscription(self, topic: str) -> Subscription:
        return self._subscriptions[topic]

    async def join(self) -> None:
        """Tell the brokers, and begin to rebalance. Returns when every broker that could be reached knows."""
        if len(self._subscriptions) == 1:
            raise StateError("no topic is subscribed: call subscribe(topic) first")
        session = self.session
        session.consuming(self._heartbeat)
        session.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        session.routes.on_change.append(lambda old, new: self.rebalancer.soon())
        for topic in self._subscriptions:
            try:
                await session.routes.get(topic)
            except RemoteError as error:
                level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                log.log(level, "topic %s cannot be read yet: %s", topic, error)
        await session.beat()
        session.spawn(self._commit_for_ever())
        session.spawn(session.every(session.intervals.renew_locks, self._renew))
        self.rebalancer.start()

    async def leave(self) -> None:
        """Let everything go, properly: nothing is handed out any more, what runs ends, offsets are committed."""
        await self.rebalancer.stop()
        await self._ownership.give_up_all()
        await self._shares.give_up()

    async def commit(self, holding: Holding) -> None:
        """Store how far the queue is, and wait for the broker's answer. Never backwards.

        One commit of a queue at a time: a broker handles requests side by side, and of two under way the lower
        might be stored last.
        """
        async with holding.committing:
            offset = holding.progress.committable
            if offset > holding.committed:
                address = self.session.routes.address_of(holding.queue)
                await self.session.remote.commit(address, self.group, holding.queue, offset)
                holding.committed = offset

    async def commit_all(self) -> None:
        outcomes = await asyncio.gather(*map(self.commit, self._ownership.holdings), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                log.warning("an offset of group %s was not committed: %s", self.group, outcome)

    async def _begin(self, queues: Collection[MessageQueue]) -> list[Holding]:
        """The holdings of queues that are ours now. One whose offset cannot be read is left out, to be tried again."""
        starts = await self._starts.find(queues, until_still=self.rebalancer.mixed)
        return [Holding(queue, start.offset, self._limits, stored=start.is_stored) for queue, start in starts.items()]

    async def _renew(self) -> None:
        await asyncio.gather(self._ownership.renew(), self._shares.renew())

    async def _commit_for_ever(self) -> None:
        """What was consumed and is not committed yet comes twice after a kill, so the time between is short."""
        while True:
            gentle = len(self._ownership.queues) / COMMITS_PER_SECOND
            await asyncio.sleep(min(self.session.intervals.commit, max(COMMIT_AT_MOST_EVERY, gentle)))
            await self.commit_all()

    async def _members_changed(self, command: Command) -> None:
        self.rebalancer.soon()
        if self.rebalancer.mixed:
            # a Java member reads the offset of a queue at once, whether its last holder has let it go or not
            await self.commit_all()

    def _heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            message_model=MessageModel.CLUSTERING.value,
            consume_from_where=self._starting.where.value,
            subscription_data_set=list(self._subscriptions.values()),
        )
