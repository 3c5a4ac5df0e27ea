"""Queues are values: whoever balances them changes none, and gives the very ones that it was given."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from evenq.balance import HashSelector, PublishRoute, assign, queue_chooser
from evenq.balance.strategies import ConsistentHash
from evenq.model import Message, MessageQueue
from tests.balance.cases import load, queues_of


@pytest.mark.parametrize(("name", "value"), [("topic", "bills"), ("broker", "b"), ("queue_id", 7)])
def test_a_queue_cannot_be_changed(name: str, value: object) -> None:
    queue = MessageQueue("orders", "a", 0)
    with pytest.raises(AttributeError):
        setattr(queue, name, value)
    assert queue == MessageQueue("orders", "a", 0)


def are_of(found: Iterable[MessageQueue], given: Iterable[MessageQueue]) -> bool:
    return {id(queue) for queue in found} <= {id(queue) for queue in given}


@pytest.mark.parametrize("preset", [False, "classic", "v5"])
def test_choosing_gives_queues_of_the_route(preset: Any) -> None:
    queues = queues_of("a", "b", "c", each=2)
    before = [str(queue) for queue in queues]
    route = PublishRoute.of(queues)
    chooser = queue_chooser(preset, clock=lambda: 0.0, random=Random(1))
    chosen = [chooser.choose(route, last) for last in (None, "a", "b", "z", None)]
    for broker in "abc":
        chooser.record(broker, 3, failed=True)
    chosen += [chooser.choose(route, last) for last in (None, "a", "b", "z", None)]
    chosen.append(HashSelector().select(route.queues, Message("orders", b"x"), "key"))
    assert are_of(chosen, queues)
    assert [str(queue) for queue in queues] == before


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_shares_hold_the_queues_that_were_divided(name: str) -> None:
    queues = queues_of("a", "b", each=3)
    shares = assign(name, queues, ["m1", "m2"])
    assert are_of((queue for share in shares.values() for queue in share), queues)


def test_a_ring_has_ten_places_for_each_member_by_default() -> None:
    assert ConsistentHash().virtual_nodes == 10
    queues, members = queues_of("a", "b", each=16), ["m1", "m2", "m3"]
    assert assign("CONSISTENT_HASH", queues, members) == assign(ConsistentHash(virtual_nodes=10), queues, members)


def test_the_java_client_answered_for_all_strategies_that_compute() -> None:
    """``CONFIG`` gives what it is given: there is nothing to compare."""
    found = {case["strategy"].partition("-")[0] for case in load("allocation")}
    assert found == {"AVG", "AVG_BY_CIRCLE", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONSISTENT_HASH"}
