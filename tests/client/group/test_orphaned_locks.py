"""Locks that members left who all died together: when they are noticed, and that nobody gets a queue twice by them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Set
from typing import Any, cast

import pytest

from evenq import MessageQueue
from evenq.client.group.handover import ORPHAN_AFTER_S, ORPHAN_PAUSE_S, HandoverLocks
from evenq.client.net.remote import Remote
from evenq.testing import Clock

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
FIRST, SECOND = "HANDOVER-g", "HANDOVER-2-g"


class Broker:
    """The locks of one broker, by name of the lock and queue."""

    def __init__(self) -> None:
        self.locks: dict[tuple[str, MessageQueue], str] = {(FIRST, QUEUE): "dead"}

    async def lock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        return {queue for queue in queues if self.locks.setdefault((group, queue), owner) == owner}

    async def unlock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            if self.locks.get((group, queue)) == owner:
                del self.locks[group, queue]


class Connection:
    closed = False


class Group:
    """Members that share a broker and a clock; ``tell`` says what each of them tells of its locks, None for nothing."""

    def __init__(self) -> None:
        self.broker, self.clock = Broker(), Clock()
        self.members: dict[str, HandoverLocks] = {}
        self.silent: set[str] = set()
        self.asked = 0

    def join(self, name: str) -> HandoverLocks:
        async def connect(address: str) -> Connection:
            return Connection()

        async def others() -> Set[MessageQueue] | None:
            self.asked += 1
            if self.silent - {name}:
                return None
            return {lock for other, locks in self.members.items() if other != name for lock in locks.owned}

        locks = HandoverLocks(
            cast(Remote, self.broker), "g", name, lambda broker: broker, connect, others=others, clock=self.clock.now
        )
        self.members[name] = locks
        return locks

    async def take_for(self, locks: HandoverLocks, seconds: float) -> set[MessageQueue]:
        """Ask again and again, as a member does that wants a queue."""
        granted = await locks.take([QUEUE])
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            granted = await locks.take([QUEUE])
        return granted


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


LONG_ENOUGH = ORPHAN_AFTER_S + ORPHAN_PAUSE_S + 0.2


def test_a_lock_of_the_dead_is_replaced_by_one_of_the_second_name() -> None:
    async def scenario() -> None:
        group = Group()
        me = group.join("me")
        assert await group.take_for(me, ORPHAN_AFTER_S + 0.3) == set(), "one look is not enough"
        assert await group.take_for(me, ORPHAN_PAUSE_S) == {QUEUE}
        assert group.broker.locks == {(FIRST, QUEUE): "dead", (SECOND, QUEUE): "me"}
        assert me.lease(QUEUE).locked
        assert me.temporary
        assert await me.renew([QUEUE]) == ({QUEUE}, set())

    run(scenario())


def test_a_lock_that_a_living_member_tells_of_is_not_touched() -> None:
    async def scenario() -> None:
        group = Group()
        group.broker.locks.clear()
        living, me = group.join("living"), group.join("me")
        assert await living.take([QUEUE]) == {QUEUE}
        assert await group.take_for(me, 90) == set()
        assert group.asked > 10
        assert group.broker.locks == {(FIRST, QUEUE): "living"}

    run(scenario())


def test_while_a_member_does_not_tell_nothing_is_taken_for_orphaned() -> None:
    async def scenario() -> None:
        group = Group()
        me = group.join("me")
        group.silent.add("hangs")
        assert await group.take_for(me, 20) == set()
        group.silent.clear()
        assert await group.take_for(me, LONG_ENOUGH) == {QUEUE}

    run(scenario())


def test_two_members_do_not_both_get_an_orphaned_queue() -> None:
    async def scenario() -> None:
        group = Group()
        one, two = group.join("one"), group.join("two")
        for _ in range(40):
            group.clock.advance(0.1)
            granted = await asyncio.gather(one.take([QUEUE]), two.take([QUEUE]))
            assert not (granted[0] and granted[1])
        assert {QUEUE} in granted

    run(scenario())


def test_the_second_lock_is_exchanged_when_the_first_has_ended() -> None:
    async def scenario() -> None:
        group = Group()
        me = group.join("me")
        await group.take_for(me, LONG_ENOUGH)
        del group.broker.locks[FIRST, QUEUE]
        assert await me.renew([QUEUE]) == ({QUEUE}, set())
        assert group.broker.locks == {(FIRST, QUEUE): "me"}
        assert not me.temporary

    run(scenario())


def test_who_knows_that_a_lock_was_orphaned_needs_both() -> None:
    async def scenario() -> None:
        group = Group()
        holder, me = group.join("holder"), group.join("me")
        await group.take_for(holder, LONG_ENOUGH)
        # it tells nobody, so that the other one also takes the first lock for orphaned
        del group.members["holder"]
        assert await group.take_for(me, LONG_ENOUGH) == set(), "the second lock is the holder's"
        del group.broker.locks[FIRST, QUEUE]
        assert await me.take([QUEUE]) == set()
        assert (FIRST, QUEUE) not in group.broker.locks, "given back for the holder"
        assert await holder.renew([QUEUE]) == ({QUEUE}, set())
        await holder.release([QUEUE])
        assert await me.take([QUEUE]) == {QUEUE}

    run(scenario())


def test_both_locks_of_a_member_that_died_are_released_in_its_name() -> None:
    async def scenario() -> None:
        group = Group()
        holder, me = group.join("holder"), group.join("me")
        await group.take_for(holder, LONG_ENOUGH)
        await holder.take([OTHER])
        await me.release([QUEUE, OTHER], owner="holder")
        assert group.broker.locks == {(FIRST, QUEUE): "dead"}

    run(scenario())


def test_asking_whether_a_queue_is_free_looks_at_the_second_lock() -> None:
    async def scenario() -> None:
        group = Group()
        me = group.join("me")
        await group.take_for(me, LONG_ENOUGH)
        assert await me.free([QUEUE]) == set()
        await me.release([QUEUE])
        assert await me.free([QUEUE]) == {QUEUE}
        assert group.broker.locks == {(FIRST, QUEUE): "dead"}

    run(scenario())


@pytest.mark.parametrize("seconds", [0.0, 59.0])
def test_in_order_no_lock_is_ever_taken_for_orphaned(seconds: float) -> None:
    async def scenario() -> None:
        group = Group()
        me = group.join("me")
        me.in_order(lambda broker: broker)
        group.broker.locks = {("g", QUEUE): "dead"}
        assert await group.take_for(me, seconds) == set()
        assert group.asked == 0

    run(scenario())
