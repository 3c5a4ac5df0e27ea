"""Traffic of simulated queues: as uneven as what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance.groups import Population, simulate_population
from evenq.balance.groups_traffic import Traffic
from evenq.balance.scenario import Event, Scenario
from evenq.errors import ArgumentError


def rows(topic: str, *messages: int) -> list[dict[str, object]]:
    return [
        {"topic": topic, "broker": "broker-a", "queue_id": number, "messages": count, "bytes": 100 * count * count}
        for number, count in enumerate(messages)
    ]


def luck() -> np.random.Generator:
    return np.random.default_rng(1)


def test_a_group_with_as_many_queues_gets_each_measured_one_once() -> None:
    traffic = Traffic.of(rows("orders", 5, 1, 30, 4))
    drawn = traffic.draw(4, 1, 50, luck())
    assert np.allclose(np.sort(drawn, axis=0).T, [0.1, 0.4, 0.5, 3.0])
    assert len(np.unique(drawn, axis=1).T) > 10, "in any order"


def test_topics_keep_to_themselves_and_units_are_what_was_asked_for() -> None:
    table = [*rows("even", 7, 7), *rows("hot", 1, 3), *rows("silent", 0, 0)]
    assert Traffic.of(table) == Traffic(((1.0, 1.0), (0.5, 1.5)))
    assert Traffic.of(table, "bytes") == Traffic(((1.0, 1.0), (0.2, 1.8)))
    drawn = Traffic.of(table).draw(2, 1, 100, luck())
    assert {tuple(sorted(column)) for column in drawn.T.tolist()} == {(1.0, 1.0), (0.5, 1.5)}


@given(st.integers(1, 40), st.integers(1, 3), st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any))
def test_what_is_drawn_was_measured_and_no_group_is_silent(queues: int, topics: int, messages: list[int]) -> None:
    traffic = Traffic.of(rows("t", *messages))
    drawn = traffic.draw(queues, topics, 20, luck())
    assert drawn.shape == (queues * topics, 20)
    assert np.isin(drawn, np.array([*traffic.topics[0], 1.0], np.float32)).all()
    assert (drawn.sum(axis=0) > 0).all()


def test_uneven_traffic_makes_members_uneven_whatever_the_strategy() -> None:
    scenario = Scenario(queues=16, members=4, events=(Event("join"),))
    even, hot = (
        simulate_population(Population.of(scenario, 2000, strategies=["STICKY"], traffic=traffic))[0]
        for traffic in (Traffic.of(rows("even", *[10] * 16)), Traffic.of(rows("hot", *[10] * 15, 1000)))
    )
    plain = simulate_population(Population.of(scenario, 2000, strategies=["STICKY"]))[0]
    assert (even.moved, even.fullness) == (plain.moved, plain.fullness)
    assert even.traffic_moved == pytest.approx(plain.traffic_moved)
    assert even.fullness == {125: 2000}, "one member of five has 4 of 16 queues"
    assert hot.moved == plain.moved, "the strategies do not look at traffic"
    assert hot.mean_traffic_peak > 4
    assert hot.fullness_at(0.5) > 4
    assert hot.mean_peak == even.mean_peak


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], r"traffic=\[\]: no topic in it has messages"),
        (rows("silent", 0), r"traffic=\['silent'\]: no topic in it has messages"),
        ([{"topic": "t"}], "traffic=.*each row needs a topic and its messages"),
        ([{"messages": 3}], "traffic=.*each row needs a topic and its messages"),
    ],
)
def test_a_table_that_tells_nothing_is_refused(table: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Traffic.of(table)
