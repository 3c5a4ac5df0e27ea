"""Claims of members against a broker's lock table that forgets, answers nothing, or keeps what nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from itertools import permutations
from typing import ParamSpec, TypeVar, cast

import pytest

from evenq.balance.routes import PublishRoute
from evenq.balance.sticky import PATIENCE, is_made_up
from evenq.broker.state.locks import QueueLocks
from evenq.client.group.handover import HandoverLocks
from evenq.client.group.held import Channel
from evenq.client.group.shares import ABSENT_PAUSE, LATER, MANY_TURNS, SOON, ClaimedShares
from evenq.client.net.remote import Remote
from evenq.client.net.routes import Route
from evenq.errors import ConnectError
from evenq.model import MessageQueue

HOT = [MessageQueue("hot", "broker-a", number) for number in range(4)]
COLD = [MessageQueue("cold", "broker-a", number) for number in range(4)]
GROUP = "HANDOVER-g"
P = ParamSpec("P")
T = TypeVar("T")


class Broker:
    """The lock table of a broker, on a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.table = QueueLocks(lambda: self.now)
        # called with the client id and the queues: whether a request fails before, or after it was carried out
        self.fails_before: Callable[[str, Sequence[MessageQueue]], bool] = lambda owner, queues: False
        self.fails_after: Callable[[str, Sequence[MessageQueue]], bool] = lambda owner, queues: False

    def restart(self) -> None:
        self.table = QueueLocks(lambda: self.now)

    async def connect(self, address: str) -> Channel:
        return cast(Channel, None)

    async def lock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        return set(await self._answer(owner, queues, lambda: self.table.lock(group, owner, queues)))

    async def unlock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> None:
        await self._answer(owner, queues, lambda: self.table.unlock(group, owner, queues))

    async def _answer(self, owner: str, queues: list[MessageQueue], act: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        if self.fails_before(owner, queues):
            raise ConnectError("broker-a", "refused")
        answer = act()
        if self.fails_after(owner, queues):
            raise ConnectError("broker-a", "the answer was lost")
        return answer


class Member:
    """A member that reads a queue as soon as it has it, and leaves one at once."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.reading: set[MessageQueue] = set()
        # what it does not come to read: its offset cannot be had
        self.slow: set[MessageQueue] = set()
        locks = HandoverLocks(cast(Remote, broker), "g", name, lambda broker: broker, broker.connect)
        self.shares = ClaimedShares(locks, "g", name, self.leave, lambda: (), lambda: self.reading)

    def leave(self, queues: Iterable[MessageQueue]) -> None:
        left = [queue for queue in queues if queue in self.reading]
        self.reading -= set(left)
        self.broker.table.unlock(GROUP, self.name, left)

    async def look(self, members: str, queues: Sequence[MessageQueue] = HOT, *, mixed: bool = False) -> None:
        topics = dict.fromkeys(queue.topic for queue in queues)
        routes = [
            Route(topic, PublishRoute.of(()), tuple(queue for queue in queues if queue.topic == topic), {})
            for topic in topics
        ]
        targets = await self.shares.targets(routes, list(members), mixed=mixed)
        wanted = {queue for mine in targets.values() for queue in mine}
        self.leave(self.reading - wanted)
        self.reading |= wanted - self.slow


async def look_in_turn(members: Sequence[Member], queues: Sequence[MessageQueue] = HOT, *, rounds: int = 4) -> None:
    for _ in range(rounds):
        for member in members:
            await member.look("".join(each.name for each in members), queues)


def check_each_queue_has_one_reader(members: Sequence[Member], queues: Sequence[MessageQueue] = HOT) -> None:
    assert sorted(queue for member in members for queue in member.reading) == sorted(queues)
    assert all(member.shares.settled for member in members)


def trio(broker: Broker) -> list[Member]:
    return [Member(broker, name) for name in "abc"]


def in_a_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@in_a_loop
async def test_two_topics_are_spread_each() -> None:
    members = trio(Broker())
    await look_in_turn(members, HOT + COLD)
    check_each_queue_has_one_reader(members, HOT + COLD)
    assert sorted(len(member.reading) for member in members) == [2, 3, 3]
    assert all(len(member.reading & set(HOT)) in (1, 2) for member in members)
    assert [member.shares.look_again_in for member in members] == [None] * 3


@pytest.mark.parametrize(("dead", "first", "other"), [*permutations("abc")])
@pytest.mark.parametrize("queues", [HOT[:3], HOT, HOT + COLD], ids=len)
@in_a_loop
async def test_after_a_kill_and_a_restart_no_queue_stays_without_a_reader(
    dead: str, first: str, other: str, queues: list[MessageQueue]
) -> None:
    """The broker forgets its locks, and who takes the dead member's share may take what another one still reads."""
    broker = Broker()
    members = {member.name: member for member in trio(broker)}
    await look_in_turn(list(members.values()), queues)
    del members[dead]
    broker.restart()
    survivors = [members[name] for name in sorted(members)]
    await members[first].look("".join(sorted(members)), queues)
    await look_in_turn(survivors, queues)
    check_each_queue_has_one_reader(survivors, queues)


@in_a_loop
async def test_after_a_restart_everybody_keeps_what_it_has() -> None:
    broker = Broker()
    members = trio(broker)
    await look_in_turn(members, HOT + COLD)
    before = [set(member.reading) for member in members]
    broker.restart()
    await look_in_turn(members, HOT + COLD)
    assert [member.reading for member in members] == before
    locks = broker.table.holders(GROUP)
    assert all(locks[queue] == member.name for member in members for queue in member.reading)


@in_a_loop
async def test_a_queue_that_was_never_read_is_unlocked_when_given_back() -> None:
    """Its lock was taken, its offset could not be had, and then it is another member's."""
    broker = Broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    a.slow = set(HOT)
    await a.look("a")
    assert set(broker.table.holders(GROUP)) == set(HOT)
    a.slow = set()
    await look_in_turn([a, b])
    check_each_queue_has_one_reader([a, b])
    assert broker.now == 0, "no lock had to expire"


@in_a_loop
async def test_a_lock_whose_answer_was_lost_is_not_kept() -> None:
    broker = Broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    lost = iter([True, True])
    broker.fails_after = lambda owner, queues: owner == "a" and queues[0] in HOT and next(lost, False)
    for _ in range(4):
        await a.look("ab")
        await b.look("ab")
    check_each_queue_has_one_reader([a, b])
    locks = broker.table.holders(GROUP)
    assert {queue for queue in HOT if locks[queue] == "a"} == a.reading


@in_a_loop
async def test_a_turn_that_is_cut_short_leaves_no_lock_behind() -> None:
    broker = Broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    turn = asyncio.create_task(a.look("ab"))
    while not broker.table.is_locked(GROUP):
        await asyncio.sleep(0)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    for _ in range(4):
        await a.look("ab")
        await b.look("ab")
    check_each_queue_has_one_reader([a, b])
    held = {lock for lock, owner in broker.table.holders(GROUP).items() if owner == "a" and not is_made_up(lock)}
    assert held == a.reading


@in_a_loop
async def test_locks_of_an_earlier_process_with_the_same_id_are_given_back() -> None:
    broker = Broker()
    broker.table.lock(GROUP, "a", HOT)
    members = [Member(broker, "a"), Member(broker, "b")]
    await look_in_turn(members)
    check_each_queue_has_one_reader(members)


@in_a_loop
async def test_locks_of_a_member_that_is_gone_are_unlocked_again_where_that_failed() -> None:
    broker = Broker()
    members = trio(broker)
    await look_in_turn(members)
    dead, survivors = members[2], members[:2]
    broker.fails_before = lambda owner, queues: owner == dead.name
    await look_in_turn(survivors)
    assert not all(member.shares.settled for member in survivors)
    broker.fails_before = lambda owner, queues: False
    await look_in_turn(survivors, rounds=12)
    check_each_queue_has_one_reader(survivors)
    assert broker.now == 0


@in_a_loop
async def test_the_last_member_reads_what_the_dead_have_locked() -> None:
    """All members crashed, and one starts anew under another name: it knows of none of them."""
    broker = Broker()
    broker.table.lock(GROUP, "dead", HOT)
    member = Member(broker, "a")
    for _ in range(MANY_TURNS - 1):
        await member.look("a")
    assert not member.reading
    await member.look("a")
    assert member.reading == set(HOT)
    # another one joins: what is not ours by its lock is claimed like the rest
    broker.now += 61
    other = Member(broker, "b")
    await look_in_turn([member, other])
    check_each_queue_has_one_reader([member, other])


@in_a_loop
async def test_leaving_unlocks_everything() -> None:
    broker = Broker()
    members = trio(broker)
    await look_in_turn(members)
    for member in members:
        member.leave(list(member.reading))
        await member.shares.give_up()
    assert broker.table.holders(GROUP) == {}


@in_a_loop
async def test_falling_back_keeps_the_locks_of_what_is_read_only() -> None:
    broker = Broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    a.slow = {HOT[0]}
    await a.look("a")
    await a.look("ab", mixed=True)
    assert set(broker.table.holders(GROUP)) == a.reading == {HOT[1]}
    assert a.shares.settled
    await look_in_turn([a, b])
    assert sorted(broker.table.holders(GROUP).keys() & set(HOT)) == HOT


@in_a_loop
async def test_a_bid_that_expired_is_put_again() -> None:
    broker = Broker()
    members = [Member(broker, "a"), Member(broker, "b")]
    await look_in_turn(members)
    bids = [lock for lock in broker.table.holders(GROUP) if is_made_up(lock)]
    broker.now += 40
    for member in members:
        await member.shares.renew()
    broker.now += 40
    assert [lock for lock in broker.table.holders(GROUP) if is_made_up(lock)] == bids
    broker.now += 61
    await look_in_turn(members)
    check_each_queue_has_one_reader(members)


@in_a_loop
async def test_a_member_that_bids_nothing_is_waited_for_and_then_looked_for_now_and_then() -> None:
    broker = Broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    for _ in range(PATIENCE):
        await a.look("ab")
        assert a.shares.look_again_in == SOON
    assert len(a.reading) == 2
    for _ in range(PATIENCE):
        await a.look("ab")
    assert (len(a.reading), a.shares.settled, a.shares.look_again_in) == (4, True, ABSENT_PAUSE)
    for _ in range(3):
        await b.look("ab")
        await a.look("ab")
    check_each_queue_has_one_reader([a, b])
    assert (len(b.reading), a.shares.look_again_in) == (2, None)


@in_a_loop
async def test_one_that_waits_for_long_looks_less_often() -> None:
    broker = Broker()
    broker.table.lock(GROUP, "somebody else", HOT)
    a = Member(broker, "a")
    for _ in range(MANY_TURNS):
        await a.look("ab")
    assert (a.shares.settled, a.shares.look_again_in) == (False, LATER)


@in_a_loop
async def test_a_lost_queue_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    a = Member(broker, "a")
    await a.look("a")
    broker.table.unlock(GROUP, "a", HOT[:1])
    broker.table.lock(GROUP, "b", HOT[:1])
    await a.look("ab")
    assert a.reading == set(HOT[1:])
    assert f"another member has the locks on {HOT[0]}: they are left" in caplog.text
