"""Hand-over between members, with the lock table and the offsets of a broker in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine, Iterable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance import Plan, plan
from evenq.client.consume.holding import Holding
from evenq.client.group import ownership as module
from evenq.client.group.handover import HandoverLocks, NoLocks
from evenq.client.group.ownership import Ownership
from evenq.client.net.remote import Remote
from evenq.client.net.session import Session
from evenq.client.settings import FlowControl, Timeouts
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from tests.client.consume.test_holding import pulled

QUEUES = [MessageQueue("t", "b", n) for n in range(4)]
ELSEWHERE = MessageQueue("t", "b2", 0)


class Broker:
    """Locks and offsets, as all members see them. Every answer takes a turn of the loop or more."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.locks: dict[MessageQueue, str] = {}
        self.offsets = dict.fromkeys([*QUEUES, ELSEWHERE], 0)
        # brokers that do not answer
        self.silent: set[str] = set()
        self.readers: dict[MessageQueue, str] = {}
        self.consumed: list[tuple[MessageQueue, int]] = []

    async def travel(self) -> None:
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)

    async def lock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        if address in self.silent:
            await asyncio.sleep(60)
        await self.travel()
        granted = {queue for queue in queues if self.locks.setdefault(queue, owner) == owner}
        await self.travel()
        return granted

    async def unlock(self, address: str, group: str, owner: str, queues: list[MessageQueue]) -> None:
        await self.travel()
        for queue in queues:
            if self.locks.get(queue) == owner:
                del self.locks[queue]


class Connection:
    closed = False


class FakeSession:
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.timeouts = Timeouts(drain=5)
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        return task


class Member:
    """A member that consumes one message of each held queue per turn."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.session = FakeSession(name)
        self.ended = 0
        self.connection: Connection | None = Connection()
        self.resumed: list[MessageQueue] = []
        self.left: list[Plan] = []
        self.committed: list[int] = []
        self.locks = HandoverLocks(cast(Remote, broker), "g", name, lambda broker: broker, self.connect)
        self.ownership = Ownership(
            cast(Session, self.session),
            self.locks,
            self.begin,
            self.commit,
            started=self.started,
            ended=self.end,
            resumed=lambda holding: self.resumed.append(holding.queue),
            on_leave=self.left.append,
        )

    async def connect(self, address: str) -> Connection:
        if self.connection is None:
            raise ConnectError(address, "the network is down")
        return self.connection

    def cut_off(self) -> None:
        """The connection to the broker is lost, and a new one cannot be made."""
        assert self.connection is not None
        self.connection.closed = True
        self.connection = None
        self.ownership.renew_soon()

    def reconnect(self) -> None:
        self.connection = Connection()
        self.ownership.renew_soon()

    async def begin(self, queues: Collection[MessageQueue]) -> list[Holding]:
        await self.broker.travel()
        found = [Holding(queue, self.broker.offsets[queue], FlowControl()) for queue in queues]
        await self.broker.travel()
        return found

    async def commit(self, holding: Holding) -> None:
        offset = holding.progress.committable
        await self.broker.travel()
        assert offset >= self.broker.offsets[holding.queue], "a commit went backwards"
        self.committed.append(offset)
        self.broker.offsets[holding.queue] = offset

    def started(self, holding: Holding) -> None:
        assert holding.queue not in self.broker.readers, "two members read one queue"
        self.broker.readers[holding.queue] = self.name
        self.session.spawn(self.read(holding))

    async def read(self, holding: Holding) -> None:
        while not holding.dropped:
            offset = holding.next_offset
            holding.add(pulled(offset))
            if batch := holding.take(1):
                await self.broker.travel()
                self.broker.consumed.append((holding.queue, batch[0].queue_offset))
                holding.finish(batch)
            await asyncio.sleep(0)
        del self.broker.readers[holding.queue]

    def end(self) -> None:
        self.ended += 1

    def target(self, queues: Iterable[MessageQueue]) -> None:
        self.ownership.carry_out(plan(self.ownership.held("t"), queues))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLAIM_PAUSE", 0)
    monkeypatch.setattr(module, "UNLOCK_TOGETHER", 0)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@settings(deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=4, max_size=4), st.integers(0, 30)), min_size=1, max_size=8
    ),
)
def test_whatever_the_plans_no_message_is_consumed_twice_or_skipped(
    seed: int, changes: list[tuple[list[int], int]]
) -> None:
    """Each change gives every queue to one of three members; they learn of it in any order, at any time."""

    async def scenario() -> None:
        broker = Broker(seed)
        members = [Member(broker, f"m{n}") for n in range(3)]
        owners: list[int] = []
        for owners, pause in changes:
            for number in broker.random.sample(range(3), 3):
                members[number].target(queue for queue, owner in zip(QUEUES, owners, strict=True) if owner == number)
                await turns(broker.random.randrange(5))
            await turns(pause)
        # the last word is said again until it holds, as the rebalance loop does when a queue has left
        for _ in range(200):
            for number, member in enumerate(members):
                member.target(queue for queue, owner in zip(QUEUES, owners, strict=True) if owner == number)
            await turns(5)
            if all(
                member.ownership.queues == [q for q, owner in zip(QUEUES, owners, strict=True) if owner == number]
                for number, member in enumerate(members)
            ):
                break
        else:
            raise AssertionError(
                f"not settled: {[member.ownership.queues for member in members]}, locks {broker.locks}"
            )
        await asyncio.gather(*(member.ownership.give_up_all() for member in members))
        await asyncio.gather(*(task for member in members for task in member.session.tasks))
        assert not broker.locks
        assert len(broker.consumed) == len(set(broker.consumed)), "a message was consumed twice"
        for queue in QUEUES:
            offsets = sorted(offset for at, offset in broker.consumed if at == queue)
            assert offsets == list(range(len(offsets))), "a message was skipped"
            assert broker.offsets[queue] == len(offsets), "what was consumed is not what was committed"

    asyncio.run(scenario())


def test_a_lock_that_stays_with_another_is_waited_for_and_then_overridden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.locks[QUEUES[0]] = "somebody who hangs"
        member = Member(broker, "m0")
        member.target(QUEUES[:1])
        await turns(50)
        assert member.ownership.queues == []
        monkeypatch.setattr(module, "CLAIM_LIMIT", -1)
        await turns(50)
        assert member.ownership.queues == QUEUES[:1]
        await member.ownership.give_up_all()

    asyncio.run(scenario())
    assert "beginning anyway, messages may come twice" in caplog.text


def test_the_only_member_does_not_wait_long_for_what_a_crash_left_behind() -> None:
    async def scenario() -> None:
        now = 0.0
        broker = Broker()
        broker.locks[QUEUES[0]] = "a member that crashed"
        member = Member(broker, "m0")
        member.ownership._clock = lambda: now
        member.ownership.members_are(["m0", "m1"], ())
        member.target(QUEUES[:1])
        now = module.ALONE_LIMIT + 1
        await turns(50)
        assert member.ownership.queues == []
        member.ownership.members_are(["m0"], ())
        await turns(50)
        assert member.ownership.queues == QUEUES[:1]
        await member.ownership.give_up_all()

    asyncio.run(scenario())


def test_a_queue_lost_before_its_lock_came_is_let_go() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        member = Member(broker, "m0")
        member.target(QUEUES)
        member.target([])
        await turns(50)
        assert member.ownership.queues == []
        assert not broker.locks

    asyncio.run(scenario())


def test_an_offset_that_cannot_be_read_yet_is_asked_for_again() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        failures = 2

        async def begin(queues: Collection[MessageQueue]) -> list[Holding]:
            nonlocal failures
            failures -= 1
            return [] if failures >= 0 else await member.begin(queues)

        member.ownership._begin = begin
        member.target(QUEUES[:1])
        await turns(100)
        assert member.ownership.queues == QUEUES[:1]
        await member.ownership.give_up_all()

    asyncio.run(scenario())


def test_a_queue_that_is_held_is_not_gained_again() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        member.target(QUEUES[:1])
        await turns(50)
        held = member.ownership.holdings
        member.ownership.carry_out(Plan(gain=(QUEUES[0], QUEUES[0])))
        await turns(50)
        assert member.ownership.holdings == held
        assert member.ownership.wanted == []
        await member.ownership.give_up_all()

    asyncio.run(scenario())


def test_a_claim_goes_on_after_any_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        failures = [KeyError("on purpose")]

        async def begin(queues: Collection[MessageQueue]) -> list[Holding]:
            if failures:
                raise failures.pop()
            return await member.begin(queues)

        member.ownership._begin = begin
        member.target(QUEUES[:1])
        async with asyncio.timeout(5):
            while not member.ownership.queues:
                await asyncio.sleep(0.001)
        await member.ownership.give_up_all()

    asyncio.run(scenario())
    assert "claiming of queues by client m0 failed: KeyError: 'on purpose'" in caplog.text


def test_a_queue_is_unlocked_whatever_its_last_commit_raises() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")

        async def commit(holding: Holding) -> None:
            raise KeyError("on purpose")

        member.ownership._commit = commit
        member.target(QUEUES[:1])
        await turns(50)
        await member.ownership.give_up_all()
        assert member.ownership.leaving == []
        assert not broker.locks

    asyncio.run(scenario())


async def keep_leases(member: Member) -> None:
    """Let the locks be renewed that are in doubt, and wait for the answers of brokers that are there."""
    await member.ownership.keep_leases()
    await turns(50)


async def renew(member: Member) -> None:
    member.ownership.renew_soon()
    await keep_leases(member)


def test_nothing_is_handed_out_until_the_lock_is_taken_anew() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        member.target(QUEUES[:1])
        await turns(50)
        [holding] = member.ownership.holdings
        member.cut_off()
        await turns(10)
        holding.add(pulled(holding.next_offset))
        assert holding.take(1) == []
        await keep_leases(member)
        assert holding.take(1) == []
        assert member.resumed == []
        member.reconnect()
        await keep_leases(member)
        assert member.resumed == QUEUES[:1]
        assert len(holding.take(1)) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("in_order", [False, True])
def test_a_queue_that_another_member_locked_meanwhile_is_released_uncommitted(in_order: bool) -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        member.ownership.in_order = in_order
        member.target(QUEUES[:2])
        await turns(50)
        for holding in member.ownership.holdings:
            holding.drop()
        member.cut_off()
        # the broker restarts, and another member is faster
        broker.locks = {QUEUES[0]: "m1"}
        broker.offsets[QUEUES[0]] = 1 << 30
        member.committed.clear()
        member.reconnect()
        await keep_leases(member)
        await turns(50)
        assert member.ownership.queues == QUEUES[1:2]
        assert member.ownership.leaving == []
        assert member.left == [Plan(lose=(QUEUES[0],), keep=(QUEUES[1],))]
        assert member.committed == []
        assert broker.locks == {QUEUES[0]: "m1", QUEUES[1]: "m0"}

    asyncio.run(scenario())


def test_a_queue_left_while_its_connection_is_lost_is_locked_before_the_commit() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        member.target(QUEUES[:1])
        await turns(50)
        member.cut_off()
        member.connection = Connection()
        broker.locks.clear()
        await member.ownership.give_up_all()
        assert len(member.committed) == 1
        assert not broker.locks

    asyncio.run(scenario())


def test_a_queue_held_without_a_lock_stays_held_when_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLAIM_LIMIT", -1)

    async def scenario() -> None:
        broker = Broker()
        broker.locks[QUEUES[0]] = "a member that crashed"
        member = Member(broker, "m0")
        member.target(QUEUES[:1])
        await turns(50)
        [holding] = member.ownership.holdings
        assert not holding.lease.locked
        await renew(member)
        assert member.ownership.holdings == [holding]
        assert holding.lease.counts()
        del broker.locks[QUEUES[0]]
        await renew(member)
        assert holding.lease.locked

    asyncio.run(scenario())


def test_a_lock_granted_while_the_member_closes_is_given_back() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        answer = asyncio.Event()

        async def travel() -> None:
            await answer.wait()

        broker.travel = travel  # type: ignore[method-assign]
        member.target(QUEUES)
        await turns(5)
        closing = asyncio.create_task(member.ownership.give_up_all())
        await turns(5)
        answer.set()
        await closing
        assert not broker.locks

    asyncio.run(scenario())


def test_whoever_renews_a_lock_its_queue_is_resumed() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        member.target(QUEUES[:1])
        await turns(50)
        member.cut_off()
        member.reconnect()
        # before the member's own turn, as claims do
        await member.locks.renew(QUEUES[:1])
        await keep_leases(member)
        assert member.resumed == QUEUES[:1]

    asyncio.run(scenario())


def test_a_broker_that_does_not_answer_delays_no_other() -> None:
    async def scenario() -> None:
        broker = Broker()
        member = Member(broker, "m0")
        member.target([*QUEUES[:2], ELSEWHERE])
        await turns(50)
        member.cut_off()
        broker.silent.add(ELSEWHERE.broker)
        member.reconnect()
        await keep_leases(member)
        assert sorted(member.resumed) == QUEUES[:2]
        # also while that request is under way
        member.cut_off()
        del broker.locks[QUEUES[0]]
        broker.locks[QUEUES[0]] = "m1"
        member.reconnect()
        await keep_leases(member)
        assert member.ownership.queues == [QUEUES[1], ELSEWHERE]
        member.target([ELSEWHERE])
        await turns(50)
        assert member.ownership.leaving == []
        assert QUEUES[1] not in broker.locks

    asyncio.run(scenario())


class TemporaryLocks(NoLocks):
    """Locks that are to be exchanged, which can be done by the second renewal."""

    def __init__(self) -> None:
        self.temporary = False
        self.renewals = 0

    async def take(self, queues: Iterable[MessageQueue], *, owner: str | None = None) -> set[MessageQueue]:
        self.temporary = True
        return set(queues)

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        self.renewals += 1
        self.temporary = self.renewals < 2
        return set(queues), set()


def test_a_temporary_lock_is_exchanged_without_another_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXCHANGE_S", 0.01)

    async def scenario() -> None:
        member, locks = Member(Broker(), "m0"), TemporaryLocks()
        member.ownership._locks = locks

        async def keep() -> None:
            while True:
                await member.ownership.keep_leases()

        keeping = asyncio.create_task(keep())
        # it waits before there is a lock
        await turns(5)
        member.target(QUEUES[:1])
        async with asyncio.timeout(10):
            while not locks.renewals or locks.temporary:
                await asyncio.sleep(0.01)
        keeping.cancel()
        await member.ownership.give_up_all()

    asyncio.run(scenario())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_in_order_a_long_wait_for_locks_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broker, clock = Broker(), Clock()
        broker.locks = dict.fromkeys(QUEUES[:2], "somebody who died")
        member = Member(broker, "m0")
        member.ownership.in_order = True
        member.ownership._clock = clock
        member.target(QUEUES[:2])
        await turns(50)
        clock.now += 4.9
        await turns(50)
        assert caplog.text == ""
        clock.now += 0.2
        await turns(50)
        [told] = caplog.messages
        assert told.startswith(
            f"waiting for the locks on {QUEUES[0]}, {QUEUES[1]}, which another member has or has left"
        )
        clock.now += 40
        await turns(50)
        assert len(caplog.messages) == 1
        broker.locks.clear()
        await turns(50)
        assert member.ownership.queues == QUEUES[:2]
        # the next wait is another one
        member.target([])
        await turns(50)
        broker.locks[QUEUES[0]] = "somebody else"
        member.target(QUEUES[:1])
        await turns(50)
        clock.now += 4.9
        await turns(50)
        assert len(caplog.messages) == 1
        clock.now += 0.2
        await turns(50)
        assert len(caplog.messages) == 2
        await member.ownership.give_up_all()

    asyncio.run(scenario())


def test_a_broker_that_does_not_answer_has_refused_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broker, clock = Broker(), Clock()
        member = Member(broker, "m0")
        member.ownership.in_order = True
        member.ownership._clock = clock
        member.connection = None
        member.target(QUEUES[:1])
        await turns(50)
        clock.now += 20
        await turns(50)
        assert not [text for text in caplog.messages if text.startswith("waiting for the locks")]
        await member.ownership.give_up_all()

    asyncio.run(scenario())
