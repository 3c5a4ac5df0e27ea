"""Which queues should be ours: computed by a strategy, or claimed by locks (``STICKY``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from evenq.balance import StrategyLike, as_strategy
from evenq.balance.sticky import Action, Ask, Claims, GiveBack, Share, Take, is_made_up, turn
from evenq.client.group.handover import Locks
from evenq.client.net.routes import Route
from evenq.model import MessageQueue
from evenq.supervision import Supervisor

__all__ = ["RETRY_PREFIX", "STICKY", "ClaimedShares", "ComputedShares", "Shares", "WholeShares"]

log = logging.getLogger(__name__)

STICKY = "STICKY"
RETRY_PREFIX = "%RETRY%"
# Seconds after which a strategy that raised is asked again; they double each time.
FIRST_RETRY_S = 0.1


class Shares(Protocol):
    """Says what this member should hold of each topic. ``settled`` is false while it should be asked again soon.

    ``retry_after_s`` is above 0 where no share of some topic could be computed: in so many seconds it may be asked
    again, and until then the member keeps what it holds of that topic.
    """

    settled: bool
    retry_after_s: float

    async def targets(
        self, routes: Sequence[Route], members: Sequence[str], *, mixed: bool
    ) -> dict[str, list[MessageQueue]]:
        """By topic. ``mixed`` says that there are members who do not take part in claims."""
        ...

    async def renew(self) -> None: ...
    async def give_up(self) -> None: ...


class ComputedShares:
    """Every member computes its own share, topic by topic, and all come to the same answer."""

    settled = True

    def __init__(self, strategy: StrategyLike, group: str, me: str) -> None:
        self._strategy = as_strategy(strategy)
        self._group = group
        self._me = me
        self._supervisors: dict[str, Supervisor] = {}
        self.retry_after_s = 0.0

    async def targets(
        self, routes: Sequence[Route], members: Sequence[str], *, mixed: bool
    ) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        pauses: list[float] = []
        for route in routes:
            if not route.readable:
                continue
            topic = route.topic
            try:
                found[topic] = self._share(route, members)
            except Exception as error:  # noqa: BLE001 - a strategy or a room resolver may raise anything
                pauses.append(self._supervisor(topic).failed(error))
            else:
                self._supervisor(topic).succeeded()
        self.retry_after_s = min(pauses, default=0.0)
        return found

    async def renew(self) -> None:
        """Nothing is held beside the queues."""

    async def give_up(self) -> None:
        """Nothing is held beside the queues."""

    def _supervisor(self, topic: str) -> Supervisor:
        name = f"strategy {self._strategy.name} of group {self._group} for topic {topic}"
        return self._supervisors.setdefault(topic, Supervisor(name, first_pause_s=FIRST_RETRY_S))

    def _share(self, route: Route, members: Sequence[str]) -> list[MessageQueue]:
        """The member's queues of one topic, each once.

        A strategy may answer with queues of other topics: ``CONFIG`` gives its whole list for every topic. These queues
        do not belong to this topic's share; the answers for their own topics decide about them.
        """
        answer = self._strategy.allocate(self._group, self._me, sorted(route.readable), list(members))
        for queue in answer:
            if not isinstance(queue, MessageQueue):
                raise TypeError(f"the strategy gave {queue!r}: it must give a list of MessageQueue")
        return [queue for queue in dict.fromkeys(answer) if queue.topic == route.topic]


class WholeShares:
    """``BROADCASTING``: every member takes every queue."""

    settled = True
    retry_after_s = 0.0

    async def targets(
        self, routes: Sequence[Route], members: Sequence[str], *, mixed: bool
    ) -> dict[str, list[MessageQueue]]:
        return {route.topic: sorted(route.readable) for route in routes if route.readable}

    async def renew(self) -> None:
        """Nothing is held beside the queues."""

    async def give_up(self) -> None:
        """Nothing is held beside the queues."""


class ClaimedShares:
    """``STICKY``: members claim queues by their hand-over locks, all topics together, and keep what they have.

    The group's retry topic is shared out by ``AVG``. ``leave`` lets queues go, which takes a while; ``leaving`` are
    those under way: their locks are still ours, and yet they are not; ``holding`` are those that are.
    """

    def __init__(
        self,
        locks: Locks,
        group: str,
        me: str,
        leave: Callable[[Iterable[MessageQueue]], None],
        leaving: Callable[[], Iterable[MessageQueue]],
        holding: Callable[[], Iterable[MessageQueue]],
    ) -> None:
        self._locks = locks
        self._me = me
        self._leave = leave
        self._leaving = leaving
        self._holding = holding
        self._computed = ComputedShares("AVG", group, me)
        self.settled = True
        # AVG and the rule of claims do not raise
        self.retry_after_s = 0.0
        # everything that we have locked, oldest first, tokens and marks too
        self._held: list[MessageQueue] = []
        self._share: Share | None = None
        self._waited = 0
        self._fallen_back = False

    async def targets(
        self, routes: Sequence[Route], members: Sequence[str], *, mixed: bool
    ) -> dict[str, list[MessageQueue]]:
        if mixed:
            return await self._fall_back(routes, members)
        retries = [route for route in routes if route.topic.startswith(RETRY_PREFIX)]
        computed = await self._computed.targets(retries, members, mixed=mixed)
        claimed = [route for route in routes if not route.topic.startswith(RETRY_PREFIX)]
        queues = [queue for route in claimed for queue in route.readable]
        if not queues:
            return computed
        mine: Sequence[MessageQueue] = ()
        if self._me in members:
            mine = await self._claim(Share(self._me, members, queues))
        else:
            log.warning("member %s is not among %s: it gets nothing", self._me, list(members))
        return computed | {route.topic: [queue for queue in mine if queue.topic == route.topic] for route in claimed}

    async def renew(self) -> None:
        """Tokens and marks last 60 s like other locks; those of queues are renewed by who holds them."""
        await self._locks.take(filter(is_made_up, self._held))

    async def give_up(self) -> None:
        """Let tokens and marks go. The queues go by being left."""
        await self._locks.release(filter(is_made_up, self._held))
        self._held.clear()

    async def _fall_back(self, routes: Sequence[Route], members: Sequence[str]) -> dict[str, list[MessageQueue]]:
        if self._share is not None or self._held or not self._fallen_back:
            log.warning("STICKY needs a group of evenq members only; this one is mixed and is divided by AVG instead")
            await self.give_up()
            self._share, self._fallen_back, self.settled = None, True, True
        return await self._computed.targets(routes, members, mixed=True)

    async def _claim(self, share: Share) -> Sequence[MessageQueue]:
        before, self._share = self._share, share
        if self._fallen_back:
            # what AVG gave us is ours by its lock: claims go on from there
            self._fallen_back = False
            self._held = list(self._holding())
        if before is not None and share.members[0] == self._me:
            # what a dead member had locked would be in the way for up to 60 s
            gone = set(before.members) - set(share.members)
            await asyncio.gather(*(self._locks.release(before.all_locks, owner=owner) for owner in gone))
        steps = turn(share, self._held, waited=self._waited)
        try:
            action = next(steps)
            while True:
                action = steps.send(await self._carry_out(action))
        except StopIteration as end:
            claims: Claims = end.value
        self.settled, self._waited = claims.settled, claims.waited
        return claims.queues

    async def _carry_out(self, action: Action) -> set[MessageQueue]:
        leaving = set(self._leaving())
        match action:
            case Take(locks):
                granted = await self._locks.take(lock for lock in locks if lock not in leaving)
                self._held += [lock for lock in locks if lock in granted and lock not in self._held]
                return granted
            case Ask(locks):
                return await self._locks.free(lock for lock in locks if lock not in leaving)
            case GiveBack(locks):
                self._held = [lock for lock in self._held if lock not in locks]
                self._leave(lock for lock in locks if not is_made_up(lock))
                await self._locks.release(filter(is_made_up, locks))
                return set()
