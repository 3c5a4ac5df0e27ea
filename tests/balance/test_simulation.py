"""Scenarios under every strategy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance import assign
from evenq.balance.measures import holders
from evenq.balance.scenario import Event, Scenario
from evenq.balance.simulation import STICKY, Run, names_for, simulate
from evenq.errors import ArgumentError
from tests.harness.scale import examples

EVEN = ("AVG", "AVG_BY_CIRCLE", "MACHINE_ROOM", STICKY)

scenarios = st.builds(
    Scenario,
    queues=st.integers(1, 20),
    # with the three that join, enough for three crashes of two
    members=st.integers(4, 6),
    topics=st.integers(1, 3),
    brokers=st.integers(1, 3),
    rooms=st.integers(1, 3),
    events=st.lists(st.sampled_from(["join:2", "leave", "crash:2", "replace", "restart"]), max_size=3).map(
        lambda texts: (Event("join", 3), *map(Event.parse, texts))
    ),
    seed=st.integers(0, 2**32),
)


def by_name(runs: list[Run]) -> dict[str, Run]:
    return {run.strategy: run for run in runs}


@given(scenarios)
@settings(max_examples=examples(40), deadline=None)
def test_what_holds_for_every_scenario(scenario: Scenario) -> None:
    runs = by_name(simulate(scenario))
    queues = set(scenario.all_queues())
    assert list(runs) == names_for(scenario)
    for name, run in runs.items():
        members = [stage.members for stage in scenario.stages()]
        assert [set(run.start), *(set(step.after) for step in run.steps)] == [set(there) for there in members]
        for step in run.steps:
            held = holders(step.after).keys()
            assert held | step.unheld == queues
            if name != "CONFIG":
                assert held == queues
            if name in EVEN and scenario.topics == 1:
                assert step.spread <= 1
                assert len(step.moved) >= step.to_even
    sticky = runs[STICKY]
    assert sticky.spread <= 1
    assert all(len(step.moved) == step.least == step.to_even for step in sticky.steps)
    assert {run.least for run in runs.values()} == {sticky.least}


def test_a_step_is_what_the_strategy_says() -> None:
    scenario = Scenario(queues=16, members=4, events=[Event("join")], seed=3)
    start, later = (stage.members for stage in scenario.stages())
    (run,) = simulate(scenario, ["AVG"])
    (step,) = run.steps
    assert run.start == step.before == assign("AVG", scenario.all_queues(), start)
    assert step.after == assign("AVG", scenario.all_queues(), later)
    assert step.joined == list(set(later) - set(start))
    assert step.left == []
    assert sorted(step.load.values()) == [3, 3, 3, 3, 4]
    assert (step.least, step.spread, step.peak, round(step.gini, 3)) == (3, 1, 1.25, 0.05)
    assert step.ratio == len(step.moved) / 3


def test_strategies_share_out_topic_by_topic_and_sticky_all_topics_together() -> None:
    """Five topics of 3 queues, 2 members: AVG gives the first member one more of each."""
    runs = by_name(simulate(Scenario(queues=3, members=2, topics=5, events=[]), ["AVG", STICKY]))
    assert (runs["AVG"].spread, runs[STICKY].spread) == (5, 1)


def test_config_keeps_to_its_word() -> None:
    (run,) = simulate(Scenario(queues=16, members=4, events=[Event("join"), Event("leave")], seed=1), ["CONFIG"])
    joined, left = run.steps
    assert joined.load[joined.joined[0]] == 0
    assert len(left.unheld) == len(left.before[left.left[0]])
    assert (run.moved, run.unheld) == (0, len(left.unheld))


def test_machine_room_takes_the_rooms_it_is_given() -> None:
    (run,) = simulate(Scenario(brokers=2, rooms=2, events=[]), ["MACHINE_ROOM"], machine_rooms=["room-b"])
    assert {queue.broker for queue in holders(run.start)} == {"room-b@broker-b"}


def test_events_of_the_same_kind_stay_apart() -> None:
    (run,) = simulate(Scenario(events=[Event("join"), Event("join"), Event("restart", 1)]), ["AVG"])
    assert [(event, len(steps)) for event, steps in run.by_event()] == [("join", 1), ("join", 1), ("restart:1", 2)]


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ArgumentError, match="strategy='MACHINE_ROOM': it needs brokers with rooms"):
        simulate(Scenario(rooms=0), ["MACHINE_ROOM"])
    with pytest.raises(ArgumentError, match="strategy='AVERAGE'"):
        simulate(Scenario(), ["AVERAGE"])
    with pytest.raises(ArgumentError, match="virtual_nodes=-1"):
        simulate(Scenario(), ["CONSISTENT_HASH"], virtual_nodes=-1)
