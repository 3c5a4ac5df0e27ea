"""Plain choosing: round robin, and a retry that leaves the failed broker alone."""

from __future__ import annotations

from evenq.balance import PublishRoute, RoundRobinChooser
from tests.balance.cases import StartAt, queues_of

ROUTE = PublishRoute.of(queues_of("a", "b", each=2))


def names(route: PublishRoute, chooser: RoundRobinChooser, *last_brokers: str | None) -> list[str]:
    queues = (chooser.choose(route, last_broker) for last_broker in last_brokers)
    return [f"{queue.broker}{queue.queue_id}" for queue in queues]


def test_round_robin_over_the_route() -> None:
    assert names(ROUTE, RoundRobinChooser(StartAt(3)), *[None] * 6) == ["b1", "a0", "a1", "b0", "b1", "a0"]


def test_a_retry_skips_every_queue_of_the_broker_that_failed_last() -> None:
    assert names(ROUTE, RoundRobinChooser(StartAt(0)), None, "a", "b", "a", None) == ["a0", "b0", "a0", "b0", "b1"]


def test_a_retry_goes_round_plainly_where_nothing_else_is_left() -> None:
    alone = PublishRoute.of(queues_of("a", each=3))
    assert names(alone, RoundRobinChooser(StartAt(0)), None, "a", "a", "a") == ["a0", "a1", "a2", "a0"]


def test_topics_that_take_turns_are_each_even() -> None:
    chooser = RoundRobinChooser(StartAt(0))
    other = PublishRoute.of(queues_of("a", "b", each=2, topic="refunds"))
    taken = [names(route, chooser, None)[0] for _ in range(4) for route in (ROUTE, other)]
    assert taken[::2] == taken[1::2] == ["a0", "a1", "b0", "b1"]


def test_nothing_is_learnt_from_how_sends_went() -> None:
    chooser = RoundRobinChooser(StartAt(0))
    chooser.record("a", 99_999, failed=True, reachable=False)
    chooser.probed("a", answered=False)
    assert chooser.due_probes() == []
    chooser.forget("a")
    assert names(ROUTE, chooser, None, None) == ["a0", "a1"]
