"""Which queues should be ours: computed by a strategy, or claimed by locks (``STICKY``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from evenq.balance import StrategyLike, as_strategy
from evenq.balance.sticky import PATIENCE, Action, Ask, Claims, GiveBack, Share, Take, is_made_up, turn
from evenq.client.group.handover import ClaimLocks
from evenq.client.net.routes import Route
from evenq.model import MessageQueue
from evenq.supervision import Supervisor

__all__ = ["RETRY_PREFIX", "STICKY", "ClaimedShares", "ComputedShares", "Shares", "WholeShares"]

log = logging.getLogger(__name__)

STICKY = "STICKY"
RETRY_PREFIX = "%RETRY%"
# Seconds after which a strategy that raised is asked again; they double each time.
FIRST_RETRY_S = 0.1

# Seconds until a member that has not got its share looks again: at first, and after MANY_TURNS in a row.
SOON, LATER = 0.03, 1.0
MANY_TURNS = 3 * PATIENCE
# Seconds until a member that has got its share looks whether one that bid nothing has done so meanwhile.
ABSENT_PAUSE = 2.0
# After so many turns in a row the locks of members that are gone are unlocked again.
UNLOCK_AGAIN_TURNS = 10


class Shares(Protocol):
    """Says what this member should hold of each topic.

    ``settled``: nothing is to change until members or queues do. ``look_again_in``: ask again after so many seconds.
    A topic whose share could not be computed is left out of the targets: the member keeps what it holds of it.
    """

    settled: bool
    look_again_in: float | None

    async def targets(
        self, routes: Sequence[Route], members: Sequence[str], *, mixed: bool
    ) -> dict[str, list[MessageQueue]]:
        """By topic. ``mixed`` says that there are members who do not take part in claims."""
        ...

    async def renew(self) -> None: ...
    async def unlock(self, dead: Iterable[str]) -> None: ...
    async def give_up(self) -> None: ...


class ComputedShares:
    """Every member computes its own share, topic by topic, and all come to the same answer."""

    settled = True
    look_again_in: float | None = None

    def __init__(self, strategy: StrategyLike, group: str, me: str) -> None:
        self._strategy = as_strategy(strategy)
        self._group = group
        self._me = me
        self._supervisors: dict[str, Supervisor] = {}

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
        self.look_again_in = min(pauses, default=None)
        self.settled = not pauses
        return found

    async def renew(self) -> None:
        """Nothing is held beside the queues."""

    async def unlock(self, dead: Iterable[str]) -> None:
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
    look_again_in: float | None = None

    async def targets(
        self, routes: Sequence[Route], members: Sequence[str], *, mixed: bool
    ) -> dict[str, list[MessageQueue]]:
        return {route.topic: sorted(route.readable) for route in routes if route.readable}

    async def renew(self) -> None:
        """Nothing is held beside the queues."""

    async def unlock(self, dead: Iterable[str]) -> None:
        """Nothing is held beside the queues."""

    async def give_up(self) -> None:
        """Nothing is held beside the queues."""


class ClaimedShares:
    """``STICKY``: members claim queues by their hand-over locks, and keep what they have.

    The group's retry topic is shared out by ``AVG``. ``leave`` lets queues go, which takes a while; ``leaving`` are
    those under way: their locks are still ours, and yet they are not; ``holding`` are those that are.

    What counts is what the brokers say. Some things make it differ from what this member remembers. Each is put right,
    for a lock that nobody uses keeps its queue without a holder until it expires:

    - A broker forgot its locks when it restarted, and another member took one: before each turn all locks are renewed,
      and a queue whose lock is lost is left.
    - An answer was lost, or an earlier process with this client id crashed, so a lock is ours and we do not know:
      before the next turn everything is unlocked that we do not hold.
    - A queue is given back before it was read: its lock is given back here, for nobody else does it.
    - A member is gone and its locks could not be unlocked: they are unlocked again while somebody lacks a queue.
    - All members crashed and one started anew: after ``MANY_TURNS`` it reads every queue, as with other strategies.
    """

    def __init__(
        self,
        locks: ClaimLocks,
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
        self.look_again_in: float | None = None
        # everything that we have locked, oldest first, bids too
        self._held: list[MessageQueue] = []
        self._share: Share | None = None
        # members that are gone and may have left locks behind
        self._gone: set[str] = set()
        # turns in a row without all bids; turns in a row without our share
        self._waited = self._turns = 0
        self._fallen_back = False
        # whether locks may be ours that are not in _held
        self._in_doubt = True

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
        """Bids last 60 s like other locks; those of queues are renewed by who holds them."""
        _, lost = await self._locks.renew([lock for lock in self._held if is_made_up(lock)])
        self._drop(lost)

    async def unlock(self, dead: Iterable[str]) -> None:
        """Give back in their names what dead members had locked, bids too: it would be in the way for up to 60 s."""
        if self._share is not None:
            locks = self._share.locks
            await asyncio.gather(*(self._locks.release(locks, owner=owner) for owner in dead))

    async def give_up(self) -> None:
        """Unlock everything; queues that were read have been left before."""
        await self._locks.release(self._share.locks if self._share is not None else self._held)
        self._held.clear()

    async def _fall_back(self, routes: Sequence[Route], members: Sequence[str]) -> dict[str, list[MessageQueue]]:
        if self._share is not None or self._held or not self._fallen_back:
            log.warning("STICKY needs a group of evenq members only; this one is mixed and is divided by AVG instead")
            in_use = {*self._holding(), *self._leaving()}
            await self._locks.release(lock for lock in self._held if lock not in in_use)
            self._held.clear()
            self._share, self._fallen_back = None, True
            self.settled, self.look_again_in = True, None
        return await self._computed.targets(routes, members, mixed=True)

    async def _claim(self, share: Share) -> Sequence[MessageQueue]:
        before, self._share = self._share, share
        if self._fallen_back:
            # what AVG gave us is ours by its lock: claims go on from there
            self._fallen_back = False
            self._held = list(self._holding())
        if share != before:
            self._waited = self._turns = 0
        await self._unlock_gone(before, share)
        await self._put_right(share)
        claims = await self._turn(share)
        self.settled, self._waited = claims.settled, claims.waited
        self._turns = 0 if claims.settled else self._turns + 1
        self._set_pause(claims)
        if claims.settled:
            self._gone.clear()
        elif len(share.members) == 1 and self._turns >= MANY_TURNS:
            # long enough alone: a living member would be in the list, so the other locks are those of the dead
            return share.queues
        return claims.queues

    def _set_pause(self, claims: Claims) -> None:
        self.look_again_in = None
        if not claims.settled:
            self.look_again_in = SOON if self._turns < MANY_TURNS else LATER
        elif self._in_doubt:
            self.look_again_in = LATER
        elif not claims.all_present:
            self.look_again_in = ABSENT_PAUSE

    async def _turn(self, share: Share) -> Claims:
        failures, self._in_doubt = self._locks.failures, True
        steps = turn(share, self._held, waited=self._waited)
        try:
            action = next(steps)
            while True:
                action = steps.send(await self._carry_out(action))
        except StopIteration as end:
            claims: Claims = end.value
        # where a request failed, or the turn was cut short, locks may be ours that we have not been told of
        self._in_doubt = self._locks.failures != failures
        return claims

    async def _unlock_gone(self, before: Share | None, share: Share) -> None:
        """Where :meth:`unlock` failed, everybody who lacks a queue tries again now and then."""
        known = set(before.members) if before is not None else set()
        self._gone = (self._gone | known) - set(share.members)
        if self._turns > 0 and self._turns % UNLOCK_AGAIN_TURNS == 0:
            queues = {*share.queues, *(before.queues if before is not None else ())}
            await asyncio.gather(*(self._locks.release(queues, owner=owner) for owner in self._gone))

    async def _put_right(self, share: Share) -> None:
        """Make what we remember equal what the brokers say."""
        if self._in_doubt:
            failures = self._locks.failures
            known = {*self._held, *self._holding(), *self._leaving()}
            await self._locks.release(lock for lock in share.locks if lock not in known)
            self._in_doubt = self._locks.failures != failures
        leaving = set(self._leaving())
        _, lost = await self._locks.renew([lock for lock in self._held if lock not in leaving])
        self._drop(lost)
        if queues := [lock for lock in lost if not is_made_up(lock)]:
            log.warning("another member has the locks on %s: they are left", ", ".join(map(str, sorted(queues))))
            self._leave(queues)

    def _drop(self, locks: Iterable[MessageQueue]) -> None:
        gone = set(locks)
        self._held = [lock for lock in self._held if lock not in gone]

    async def _carry_out(self, action: Action) -> set[MessageQueue]:
        leaving = set(self._leaving())
        match action:
            case Take(locks):
                granted = await self._locks.take(lock for lock in locks if lock not in leaving)
                self._held += [lock for lock in locks if lock in granted and lock not in self._held]
                return granted
            case Ask(locks):
                asked = [lock for lock in locks if lock not in leaving]
                return await self._locks.free(asked, is_real=lambda lock: not is_made_up(lock))
            case GiveBack(locks):
                self._drop(locks)
                read = {*self._holding(), *leaving}
                self._leave(lock for lock in locks if not is_made_up(lock))
                await self._locks.release(lock for lock in locks if lock not in read)
                return set()
