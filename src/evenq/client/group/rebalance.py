"""The rebalance loop: when to look, what to compare, and the plan that comes of it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from evenq.balance import Plan, plan
from evenq.client.group.members import Members
from evenq.client.group.shares import Shares
from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.model import MessageQueue, java_order
from evenq.supervision import FailureLog, callable_name

__all__ = ["Owner", "Rebalancer"]

log = logging.getLogger(__name__)

# Several notices of one change come within a few milliseconds of each other, one from each broker.
COALESCE = 0.02
JITTER = 0.02
# A topic without a route is asked for again after so long: it may be made by the first message to it.
MISSING_PAUSE = 1.0
# After the connection to a broker was lost or made anew, members that were known before count as members for so many
# seconds: a broker that has just restarted lists only those that have found it again. Longer than the longest pause
# between two attempts to connect.
RECONNECT_GRACE_S = 2.0
# While the connection is made and lost again and again, that lasts for so many seconds at most.
RECONNECT_GRACE_MAX_S = 10.0
# A member that is missing from the list for so many seconds is taken for dead. One that has only lost its connection is
# back sooner.
DEAD_AFTER_S = 0.5


@dataclass(slots=True)
class _Outage:
    """Changes of the connection to a broker that came soon after each other, and the broker's first answer since.

    An address that accepts and hangs up for ever must not keep dead members alive: before it answers it says nothing of
    members, and its outage gives them a limited time after that.
    """

    changed_at: float
    heard_at: float | None = None


class Owner(Protocol):
    """Who carries plans out. ``held`` are the queues it has or is about to have; ``carry_out`` must not wait long."""

    @property
    def topics(self) -> set[str]: ...
    def held(self, topic: str) -> set[MessageQueue]: ...
    def carry_out(self, plan: Plan) -> None: ...
    def members_are(self, members: list[str], gone: Iterable[str]) -> None: ...


class Rebalancer:
    """Every 20 s, on every notice and on every change of a topic's queues: compare what is held with what should be."""

    def __init__(
        self,
        session: Session,
        group: str,
        shares: Shares,
        topics: Callable[[], Iterable[str]],
        owner: Owner,
        *,
        random: random.Random | None = None,
    ) -> None:
        self._session = session
        self._group = group
        self.shares = shares
        self._topics = topics
        self._owner = owner
        self._random = random or _random
        self._members = Members(session.remote, group, session.outages)
        self._known: set[str] = set()
        # members that are gone, and since when
        self._missing: dict[str, float] = {}
        # by address
        self._outages: dict[str, _Outage] = {}
        # whether members of other make are in the group: they take no hand-over locks
        self.mixed = False
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # plans that had something to do, newest last; for listeners and for people who ask why
        self.on_plan: list[Callable[[Plan], None]] = []
        self._listener_failures: dict[int, FailureLog] = {}
        self.rounds = 0
        # whether a look has come to its end: before that nothing is known of what should be held
        self.looked = False

    def soon(self) -> None:
        """Something may have changed: look again at once."""
        self._due.set()

    def start(self) -> None:
        self._session.on_connection.append(self._connection_changed)
        self._task = self._session.spawn(self._session.repeat(self._step, f"rebalancing of group {self._group}"))
        self.soon()

    async def stop(self) -> None:
        """No plan is made any more. One that is being made is given up."""
        if self._task is not None:
            self._task.cancel()
            if self._timer is not None:
                self._timer.cancel()
            await asyncio.wait([self._task])

    async def _step(self) -> None:
        """Wait until it is time to look, then look."""
        try:
            async with asyncio.timeout(self._session.intervals.rebalance):
                await self._due.wait()
            await asyncio.sleep(COALESCE + self._random.random() * JITTER)
        except TimeoutError:
            pass
        self._due.clear()
        try:
            await self.once()
        except Exception:
            # the look that failed is repeated after the supervisor's pause, not at the next interval
            self._due.set()
            raise

    async def once(self) -> None:
        """One look at every topic of the subscription."""
        self.rounds += 1
        routes = []
        for topic in self._topics():
            try:
                routes.append(await self._session.routes.get(topic))
            except RemoteError as error:
                log.debug("topic %s has no queues for group %s now: %s", topic, self._group, error)
                self._again(MISSING_PAUSE)
        brokers = {name: route.replicas(name) for route in routes for name, ids in route.addresses.items() if ids}
        members = await self._ask_members(brokers)
        if members is None:
            self._give_up_unsubscribed()
            return
        members = self._with_reconnecting(members)
        # a broker that has just restarted may know of no member yet, which counts as mixed: that must not last
        if set(members) != self._known or self.mixed:
            self.mixed = await self._members.has_strangers(brokers)
        dead = self._dead(members)
        self._owner.members_are(members, dead)
        await self.shares.unlock(dead)
        self._known = set(members)
        targets = await self.shares.targets(routes, members, mixed=self.mixed)
        self._give_up_unsubscribed()
        subscribed = set(self._topics())
        for topic, target in targets.items():
            if topic in subscribed:
                self._apply(plan(self._owner.held(topic), target))
        self.looked = True
        if self.shares.look_again_in is not None:
            self._again(self.shares.look_again_in)

    def _give_up_unsubscribed(self) -> None:
        """Let queues go whose topics are not subscribed to any more, also those of topics that are gone."""
        for topic in self._owner.topics - set(self._topics()):
            self._apply(plan(self._owner.held(topic), ()))

    def _connection_changed(self, address: str) -> None:
        now = asyncio.get_running_loop().time()
        outage = self._outages.get(address)
        if outage is not None and now - outage.changed_at <= RECONNECT_GRACE_S:
            outage.changed_at = now
        else:
            self._outages[address] = _Outage(now)

    def _with_reconnecting(self, members: list[str]) -> list[str]:
        """The members, with those that a broker may not list because they have not found it again yet."""
        now = asyncio.get_running_loop().time()
        left = -inf
        for address in self._members.answered & self._outages.keys():
            outage = self._outages[address]
            if outage.heard_at is None:
                outage.heard_at = now
            until = min(outage.changed_at + RECONNECT_GRACE_S, outage.heard_at + RECONNECT_GRACE_MAX_S)
            left = max(left, until - now)
        if left <= 0 or self._known <= set(members):
            return members
        self._again(left)
        return sorted(self._known.union(members), key=java_order)

    def _dead(self, members: list[str]) -> list[str]:
        """The members that have been missing for long enough to be dead; each is named once."""
        now = asyncio.get_running_loop().time()
        self._missing = {gone: self._missing.get(gone, now) for gone in {*self._missing, *self._known} - {*members}}
        dead = [gone for gone, since in self._missing.items() if now - since >= DEAD_AFTER_S]
        for gone in dead:
            del self._missing[gone]
        if self._missing:
            self._again(min(self._missing.values()) + DEAD_AFTER_S - now)
        return dead

    def _again(self, seconds: float) -> None:
        """Look again after so many seconds, or earlier where that is planned already."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and loop.time() < self._timer.when() <= loop.time() + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self.soon)

    def _apply(self, todo: Plan) -> None:
        if todo:
            self.announce(todo)
        self._owner.carry_out(todo)

    def announce(self, todo: Plan) -> None:
        """Let the listeners hear of a plan before it is carried out."""
        log.info("group %s, member %s: %s", self._group, self._session.client_id, todo)
        for listener in self.on_plan:
            self._tell(listener, todo)

    def _tell(self, listener: Callable[[Plan], None], todo: Plan) -> None:
        """Call a listener. What it raises must not keep the plan from being carried out."""
        try:
            listener(todo)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything
            name = f"listener {callable_name(listener)} of rebalances of group {self._group}"
            failures = self._listener_failures.setdefault(id(listener), FailureLog(name))
            failures.record(error, "the plan is carried out nevertheless")

    async def _ask_members(self, brokers: Mapping[str, Sequence[str]]) -> list[str] | None:
        members = await self._members.ask(brokers)
        if members is None or self._session.client_id in members:
            return members
        # A broker forgot us, or has not heard of us yet. Without a heartbeat we would give everything up.
        await self._session.beat()
        return await self._members.ask(brokers)


_random = random.Random()
