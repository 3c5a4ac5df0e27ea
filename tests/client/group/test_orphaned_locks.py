"""Locks that members left who all died together: when they are noticed, and that nobody gets a queue twice by them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Set
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq import MessageQueue
from evenq.broker.state.locks import QueueLocks
from evenq.client.group.handover import ORPHAN_AFTER_S, ORPHAN_PAUSE_MAX_S, ORPHAN_PAUSE_S, HandoverLocks
from evenq.client.group.held import Lease
from evenq.client.net.remote import Remote
from evenq.errors import ConnectError
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
        self.connections: dict[str, Connection] = {}
        self.silent: set[str] = set()
        self.asked = 0

    def join(self, name: str) -> HandoverLocks:
        self.connections[name] = Connection()

        async def connect(address: str) -> Connection:
            return self.connections[name]

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


def test_who_only_asks_finds_a_lock_of_the_dead_free() -> None:
    async def scenario() -> None:
        group = Group()
        group.broker.locks[FIRST, OTHER] = "dead"
        me = group.join("me")
        free: set[MessageQueue] = set()
        for _ in range(round(LONG_ENOUGH / 0.1)):
            free = await me.free([QUEUE, OTHER], is_real=lambda queue: queue == QUEUE)
            group.clock.advance(0.1)
        assert free == {QUEUE}
        assert group.broker.locks == {(FIRST, QUEUE): "dead", (FIRST, OTHER): "dead"}, "asking leaves nothing"
        assert await me.take([QUEUE]) == {QUEUE}

    run(scenario())


def test_who_only_asks_leaves_a_living_member_its_lock() -> None:
    async def scenario() -> None:
        group = Group()
        group.broker.locks.clear()
        living, me = group.join("living"), group.join("me")
        for _ in range(round(90 / 0.5)):
            assert await living.take([QUEUE]) == {QUEUE}
            assert await me.free([QUEUE]) == set()
            group.clock.advance(0.5)
        assert group.broker.locks == {(FIRST, QUEUE): "living"}

    run(scenario())


def test_a_lock_that_a_living_member_tells_of_is_not_touched() -> None:
    async def scenario() -> None:
        group = Group()
        group.broker.locks.clear()
        living, me = group.join("living"), group.join("me")
        assert await living.take([QUEUE]) == {QUEUE}
        assert await group.take_for(me, 90) == set()
        assert 10 < group.asked < 20, "less and less often"
        assert group.broker.locks == {(FIRST, QUEUE): "living"}

    run(scenario())


def test_while_a_member_does_not_tell_nothing_is_taken_for_orphaned() -> None:
    async def scenario() -> None:
        group = Group()
        me = group.join("me")
        group.silent.add("hangs")
        assert await group.take_for(me, 20) == set()
        group.silent.clear()
        assert await group.take_for(me, ORPHAN_PAUSE_MAX_S + ORPHAN_PAUSE_S + 0.2) == {QUEUE}

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
        assert await me.free([QUEUE]) == set(), "the others have just been asked: nothing could be taken now"
        group.clock.advance(ORPHAN_PAUSE_S)
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


def test_a_newcomer_sees_a_holder_by_the_second_lock() -> None:
    async def scenario() -> None:
        group = Group()
        holder = group.join("holder")
        await group.take_for(holder, LONG_ENOUGH)
        del group.broker.locks[FIRST, QUEUE]
        newcomer = group.join("newcomer")
        assert await newcomer.take([QUEUE]) == set()
        assert group.broker.locks == {(SECOND, QUEUE): "holder"}, "the first lock is left to the holder"
        assert await holder.renew([QUEUE]) == ({QUEUE}, set())
        assert group.broker.locks == {(FIRST, QUEUE): "holder"}
        await holder.release([QUEUE])
        assert await newcomer.take([QUEUE]) == {QUEUE}
        assert group.broker.locks == {(FIRST, QUEUE): "newcomer"}

    run(scenario())


def test_that_a_lock_was_orphaned_is_not_believed_for_ever() -> None:
    async def scenario() -> None:
        group = Group()
        first = group.join("first")
        await group.take_for(first, LONG_ENOUGH)
        await first.release([QUEUE])
        del group.broker.locks[FIRST, QUEUE]
        second = group.join("second")
        assert await second.take([QUEUE]) == {QUEUE}
        assert await group.take_for(first, LONG_ENOUGH) == set()
        assert group.broker.locks == {(FIRST, QUEUE): "second"}

    run(scenario())


@pytest.mark.parametrize("told", [True, False])
def test_a_second_lock_that_lapsed_is_no_proof(told: bool) -> None:
    async def scenario() -> None:
        group = Group()
        holder = group.join("holder")
        await group.take_for(holder, LONG_ENOUGH)
        lease = holder.lease(QUEUE)
        # the broker restarts, and another member is back sooner
        group.broker.locks.clear()
        group.connections["holder"].closed = True
        newcomer = group.join("newcomer")
        assert await newcomer.take([QUEUE]) == {QUEUE}
        group.connections["holder"] = Connection()
        group.clock.advance(1)
        if told:
            assert await holder.renew([QUEUE]) == (set(), {QUEUE})
            assert lease.lost
            assert not holder.temporary
        else:
            group.silent.add("newcomer")
            assert await holder.renew([QUEUE]) == (set(), set()), "not known"
        assert not lease.counts()

    run(scenario())


def spare(number: int, queue: MessageQueue = QUEUE) -> MessageQueue:
    """The queue whose lock under the second name is the spare of this number."""
    return queue if number == 1 else MessageQueue(f"%SPARE-{number}%{queue.topic}", queue.broker, queue.queue_id)


def test_a_spare_lock_of_the_dead_keeps_nobody_from_the_queue() -> None:
    """Somebody died between the end of a first lock and the exchange of the spare for it."""

    async def scenario() -> None:
        group = Group()
        group.broker.locks = {(SECOND, QUEUE): "dead"}
        me = group.join("me")
        assert await group.take_for(me, LONG_ENOUGH) == {QUEUE}
        assert group.broker.locks == {(FIRST, QUEUE): "me", (SECOND, QUEUE): "dead"}
        assert await me.renew([QUEUE]) == ({QUEUE}, set())
        other = group.join("other")
        assert await group.take_for(other, 0.0) == set()
        await me.release([QUEUE])
        assert await group.take_for(other, LONG_ENOUGH) == {QUEUE}

    run(scenario())


def test_a_group_that_dies_again_within_the_minute_goes_on_soon() -> None:
    async def scenario() -> None:
        group = Group()
        for number in range(1, 4):
            me = group.join(f"m{number}")
            assert await group.take_for(me, number * LONG_ENOUGH) == {QUEUE}, number
            assert group.broker.locks[SECOND, spare(number)] == f"m{number}"
            group.members.clear()
        last = group.join("last")
        assert await group.take_for(last, 30) == set(), "as many deaths as there are locks"

    run(scenario())


def test_of_two_who_ask_at_the_same_time_at_least_one_hears_of_the_other() -> None:
    """One has the first lock and knows of an orphaned spare, the other has that spare, which has just ended."""

    async def scenario() -> None:
        group = Group()
        one, two = group.join("one"), group.join("two")
        group.broker.locks = {(SECOND, QUEUE): "dead"}
        await group.take_for(one, ORPHAN_AFTER_S + ORPHAN_PAUSE_S - 0.1)
        group.broker.locks[FIRST, QUEUE] = "dead"
        await group.take_for(two, LONG_ENOUGH - 0.1)
        group.broker.locks.clear()
        group.clock.advance(ORPHAN_PAUSE_S)
        # both look at the others' locks before either of them has got an answer
        granted = await asyncio.gather(one.take([QUEUE]), two.take([QUEUE]))
        assert not (granted[0] and granted[1])

    run(scenario())


@pytest.mark.parametrize("dead", [FIRST, SECOND])
def test_a_queue_is_not_free_while_nobody_can_make_sure_that_it_is(dead: str) -> None:
    async def scenario() -> None:
        group = Group()
        group.broker.locks = {(dead, QUEUE): "dead"}
        me = group.join("me")
        assert await group.take_for(me, LONG_ENOUGH) == {QUEUE}
        await me.release([QUEUE])
        group.silent.add("hangs")
        group.clock.advance(ORPHAN_PAUSE_S)
        assert await me.take([QUEUE]) == set()
        assert await me.free([QUEUE]) == set()
        assert group.broker.locks == {(dead, QUEUE): "dead"}

    run(scenario())


@settings(deadline=None, max_examples=300)
@given(st.sets(st.integers(0, 3), max_size=3), st.integers(1, 3), st.integers(0, 1 << 30))
def test_whatever_locks_the_dead_left_somebody_gets_the_queue(dead: set[int], members: int, seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(seed).random
        group = Group()
        names = [(FIRST, QUEUE), *((SECOND, spare(number)) for number in range(1, 4))]
        group.broker.locks = {names[number]: "dead" for number in dead}
        living = [group.join(f"m{number}") for number in range(members)]
        granted: list[set[MessageQueue]] = []
        for _ in range(round(4 * LONG_ENOUGH / 0.1)):
            group.clock.advance(0.1)
            for me in living:
                if chance() < 0.5 and QUEUE in await me.free([QUEUE]):
                    assert await me.take([QUEUE]) == {QUEUE}, "free is what can be taken now"
            granted = await asyncio.gather(*(me.take([QUEUE]) for me in living))
            assert sum(map(len, granted)) <= 1
        assert sum(map(len, granted)) == 1, group.broker.locks
        for each in names:
            if group.broker.locks.get(each) == "dead":
                del group.broker.locks[each]
        for me in living:
            if me.owned:
                assert await me.renew([QUEUE]) == ({QUEUE}, set())
                assert [*group.broker.locks] == [(FIRST, QUEUE)], "the spare is exchanged"

    run(scenario())


class Table:
    """The locks of a broker that expire, restart and whose answers travel."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock = random.Random(seed), Clock()
        self.locks = QueueLocks(self.clock.now)
        self.members: dict[str, Reader] = {}

    async def travel(self) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)

    async def lock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        return set(await self.request(owner, lambda: self.locks.lock(group, owner, queues)))

    async def unlock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> None:
        await self.request(owner, lambda: self.locks.unlock(group, owner, queues))

    async def request(self, owner: str, act: Callable[[], Any]) -> Any:
        connection = self.members[owner].connection
        await self.travel()
        if connection.closed:
            raise ConnectError("b", "lost")
        answer = act()
        await self.travel()
        if connection.closed:
            raise ConnectError("b", "the answer was lost")
        return answer

    def restart(self) -> None:
        self.locks = QueueLocks(self.clock.now)
        for member in self.members.values():
            member.connection.closed = True


class Reader:
    """A member that takes the queue, renews its lock and gives it back, one step after the other."""

    def __init__(self, table: Table, name: str) -> None:
        self.table, self.name = table, name
        self.connection = Connection()
        self.dead = False
        # what it reads the queue by
        self.lease: Lease | None = None
        self.step: asyncio.Task[None] | None = None
        self.locks = HandoverLocks(
            cast(Remote, table),
            "g",
            name,
            lambda broker: broker,
            self.connect,
            others=self.others,
            clock=table.clock.now,
        )

    async def connect(self, address: str) -> Connection:
        if self.connection.closed:
            raise ConnectError(address, "away")
        return self.connection

    async def others(self) -> Set[MessageQueue] | None:
        told: set[MessageQueue] = set()
        for other in [each for each in self.table.members.values() if each is not self and not each.connection.closed]:
            await self.table.travel()
            if self.connection.closed or other.connection.closed:
                return None
            told |= other.locks.owned
            await self.table.travel()
        return told

    @property
    def reads(self) -> bool:
        return not self.dead and self.lease is not None and self.lease.counts()

    async def act(self) -> None:
        if self.lease is None:
            if await self.locks.take([QUEUE]):
                self.lease = self.locks.lease(QUEUE)
        elif self.lease.lost or self.table.random.random() < 0.2:
            self.lease = None
            await self.locks.release([QUEUE])
        else:
            await self.locks.renew([QUEUE])

    def change(self) -> None:
        """Go on, lose the connection or make it anew."""
        chance = self.table.random.random()
        if self.step is None or self.step.done():
            self.step = asyncio.create_task(self.act())
        if self.connection.closed and chance < 0.4:
            self.connection = Connection()
        elif chance < 0.03:
            self.connection.closed = True


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 1 << 30))
def test_whatever_happens_to_locks_nobody_reads_beside_another(seed: int) -> None:
    async def scenario() -> None:
        table = Table(seed)
        chance = table.random.random
        # the locks of a group that died at once, more than once
        for number in range(4):
            if chance() < 0.5:
                table.locks.lock(SECOND if number else FIRST, f"dead {number}", [spare(number or 1)])
        for number in range(300):
            living = [member for member in table.members.values() if not member.dead]
            if len(living) < 3 and chance() < 0.2:
                table.members[f"m{number}"] = Reader(table, f"m{number}")
            for member in living:
                if chance() < 0.6:
                    member.change()
                elif chance() < 0.01:
                    member.dead = member.connection.closed = True
            if chance() < 0.01:
                table.restart()
            table.clock.advance(table.random.choice([0, 0.05, 0.3, 0.6, 3]))
            for _ in range(table.random.randrange(8)):
                await asyncio.sleep(0)
                reading = [member.name for member in table.members.values() if member.reads]
                assert len(reading) <= 1, reading
        await asyncio.gather(*(member.step for member in table.members.values() if member.step is not None))

    run(scenario())
