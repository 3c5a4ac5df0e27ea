import pytest

from evenq.broker.state.locks import QueueLocks
from evenq.model import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def locks(now: list[float]) -> QueueLocks:
    return QueueLocks(lambda: now[0])


def test_a_queue_has_one_owner_at_a_time(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", QUEUES[:2]) == QUEUES[:2]
    assert locks.lock("g", "c2", QUEUES) == QUEUES[2:]


def test_groups_do_not_know_each_other(locks: QueueLocks) -> None:
    locks.lock("g", "c1", QUEUES)
    assert locks.lock("HANDOVER-g", "c2", QUEUES) == QUEUES


def test_a_lock_lasts_a_minute_from_its_last_renewal(locks: QueueLocks, now: list[float]) -> None:
    locks.lock("g", "c1", QUEUES)
    now[0] += 59
    assert locks.lock("g", "c1", QUEUES[:1]) == QUEUES[:1]
    now[0] += 2
    assert locks.lock("g", "c2", QUEUES) == QUEUES[1:]
    now[0] += 60
    assert locks.lock("g", "c2", QUEUES) == QUEUES


def test_only_the_owner_lets_go(locks: QueueLocks) -> None:
    locks.lock("g", "c1", QUEUES)
    locks.unlock("g", "c2", QUEUES)
    locks.unlock("other", "c1", QUEUES)
    assert locks.lock("g", "c2", QUEUES) == []
    locks.unlock("g", "c1", QUEUES[:1])
    assert locks.lock("g", "c2", QUEUES) == QUEUES[:1]


def test_a_group_is_locked_while_any_lock_holds(locks: QueueLocks, now: list[float]) -> None:
    assert not locks.is_locked("g")
    locks.lock("g", "c1", QUEUES[:1])
    assert locks.is_locked("g")
    now[0] += 61
    assert not locks.is_locked("g")


def test_holders_are_those_whose_locks_have_not_run_out(locks: QueueLocks, now: list[float]) -> None:
    locks.lock("g", "c1", QUEUES[:2])
    now[0] += 30
    locks.lock("g", "c2", QUEUES[2:])
    assert locks.holders("g") == {QUEUES[0]: "c1", QUEUES[1]: "c1", QUEUES[2]: "c2"}
    now[0] += 31
    assert locks.holders("g") == {QUEUES[2]: "c2"}
    assert locks.holders("other") == {}


def test_expired_locks_are_forgotten(locks: QueueLocks, now: list[float]) -> None:
    locks.lock("g", "c1", QUEUES[:1])
    now[0] += 30
    locks.lock("g", "c2", QUEUES[1:2])
    now[0] += 31
    locks.expire()
    assert locks.lock("g", "c3", QUEUES) == [QUEUES[0], QUEUES[2]]
