"""Looks at a group: what has moved between two of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from evenq.cli.demo.watching import Look, Watcher, name_of
from evenq.model import MessageQueue
from evenq.testing import cluster

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


def test_a_member_without_one_of_our_names_is_the_query() -> None:
    assert name_of("127.0.0.1@c1", {"c1"}) == "c1"
    assert name_of("127.0.0.1@c9", {"c1"}) == "Spark"


@pytest.mark.live
def test_a_queue_that_nobody_holds_for_a_moment_has_moved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster() as brokers:
        watcher = Watcher(brokers, "billing", "orders")
        told: list[list[tuple[MessageQueue, str, str]]] = []

        def see(holders: Mapping[MessageQueue, str]) -> None:
            monkeypatch.setattr(watcher, "_look", lambda names: Look(holders, {}, {}, (), 0))
            told.append(watcher.look(set()))

        a, b, c = QUEUES
        see({a: "c1", b: "c1"})
        see({a: "c1"})
        see({a: "c1", b: "c2", c: "c2"})
        see({a: "c1", b: "c1", c: "c2"})
        assert told == [[], [], [(b, "c1", "c2")], [(b, "c2", "c1")]]
        assert watcher.moves == 2
        assert watcher.last.held_by("c1") == [a, b]
