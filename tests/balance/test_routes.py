"""Going round the writable queues, with and without some brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance import Counter, PublishRoute
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from tests.balance.cases import queues_of

layouts = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 9)), min_size=1, max_size=20, unique=True)


def route_of(layout: list[tuple[str, int]]) -> PublishRoute:
    return PublishRoute.of(MessageQueue("orders", broker, number) for broker, number in layout)


@given(layout=layouts, start=st.integers(0, 100), left_out=st.frozensets(st.sampled_from("abcdefg")))
def test_leaving_out_is_going_on_until_a_queue_fits(
    layout: list[tuple[str, int]], start: int, left_out: frozenset[str]
) -> None:
    route, counter, stepped = route_of(layout), Counter(start), Counter(start)
    for _ in range(2 * len(layout)):
        found = route.next_without(counter, left_out)
        if left_out >= route.by_broker.keys():
            assert found is None
            assert counter.at == start
        else:
            while (expected := route.next(stepped)).broker in left_out:
                pass
            assert found == expected
            assert counter.at == stepped.at


@given(layout=layouts, left_out=st.frozensets(st.sampled_from("abcde")), rounds=st.integers(1, 4))
def test_what_is_left_gets_even_shares(layout: list[tuple[str, int]], left_out: frozenset[str], rounds: int) -> None:
    route, counter = route_of(layout), Counter(0)
    left = [queue for queue in route.queues if queue.broker not in left_out]
    taken = [route.next_without(counter, left_out) for _ in range(rounds * len(left))]
    assert taken == left * rounds


def test_queues_of_one_broker() -> None:
    route, counter = PublishRoute.of(queues_of("a", "b", each=2)), Counter(3)
    assert [route.next_of(counter, "b"), route.next_of(counter, "b")] == [route.queues[3], route.queues[2]]
    assert route.next_of(counter, "z") is None
    assert counter.at == 5


def test_a_route_is_a_value() -> None:
    queues = queues_of("a", "b")
    route = PublishRoute.of(queues)
    route.next_without(Counter(0), frozenset("a"))
    assert route == PublishRoute.of(queues)
    assert route != PublishRoute.of(reversed(queues))
    assert (route.topic, route.by_broker) == ("orders", {"a": (queues[0],), "b": (queues[1],)})


def test_what_is_remembered_for_sets_of_brokers_is_bounded() -> None:
    route = PublishRoute.of(queues_of("a", "b"))
    for number in range(1000):
        assert route.next_without(Counter(0), frozenset(("a", f"gone-{number}"))) == route.queues[1]
    assert len(route._skips) <= 64


def test_a_route_without_queues_says_so() -> None:
    route = PublishRoute.of([])
    assert route.next_without(Counter(0), frozenset("a")) is None
    with pytest.raises(ArgumentError, match="no queue that can be written"):
        route.next(Counter(0))
