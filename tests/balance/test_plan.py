"""The rebalance plan: what is held, what should be, and the way between."""

from __future__ import annotations

from hypothesis import given

from evenq.balance import Plan, plan, sorted_queues
from evenq.model import MessageQueue
from tests.balance.cases import queue_lists, queues_of


@given(held=queue_lists, target=queue_lists)
def test_a_plan_leads_from_held_to_target(held: list[MessageQueue], target: list[MessageQueue]) -> None:
    change = plan(held, target)
    assert (set(held) - set(change.lose)) | set(change.gain) == set(target)
    assert sorted([*change.lose, *change.keep]) == sorted(held)
    assert sorted([*change.gain, *change.keep]) == sorted(target)
    assert change.moved == len(set(held) ^ set(target))
    assert bool(change) is (set(held) != set(target))
    for part in (change.lose, change.keep, change.gain):
        assert list(part) == sorted_queues(part)


def test_nothing_to_do() -> None:
    assert not plan([], [])
    assert plan([], []) == Plan()
    held = queues_of("a", "b")
    assert plan(held, reversed(held)) == Plan(keep=tuple(held))


def test_a_plan_reads_well_in_a_log() -> None:
    a, b, c, d = queues_of("broker-a", each=4)
    assert str(plan([b, a, c], [c])) == "lose orders@broker-a:0 orders@broker-a:1, keep 1, gain none"
    assert str(plan([], [d])) == "lose none, keep 0, gain orders@broker-a:3"
