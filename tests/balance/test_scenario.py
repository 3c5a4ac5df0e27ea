"""Scenarios: the same for the same seed, and only what can happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance.scenario import EVENTS, Event, Scenario, lay_out
from evenq.errors import ArgumentError


def member_counts(*events: str, members: int = 4) -> list[int]:
    scenario = Scenario(members=members, events=[Event.parse(text) for text in events])
    return [len(stage.members) for stage in scenario.stages()]


def test_events_change_the_members_as_they_say() -> None:
    assert member_counts("join:2", "leave", "crash:3", "replace:2") == [4, 6, 5, 2, 2]
    assert member_counts("restart") == [4, 3, 4, 3, 4, 3, 4, 3, 4]
    assert member_counts("restart:1") == [4, 3, 4]
    assert member_counts("restart", members=1) == [1, 1], "the last member is not missed: nobody could hold a queue"


def test_a_replacement_is_somebody_new_and_a_restart_is_not() -> None:
    start, replaced, without, restarted = Scenario(events=[Event("replace"), Event("restart", 1)]).stages()
    assert len(set(replaced.members) - set(start.members)) == 1
    assert set(without.members) < set(replaced.members)
    assert restarted.members == replaced.members


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["join", "replace", "restart"]), max_size=5))
def test_the_seed_says_everything(seed: int, kinds: list[str]) -> None:
    scenario = Scenario(seed=seed, events=[Event.parse(kind) for kind in kinds])
    stages = list(scenario.stages())
    assert stages == list(scenario.stages())
    assert {member for stage in stages for member in stage.members} == set(scenario.everybody())
    assert set(scenario.member_rooms()) == set(scenario.everybody())


def test_queues_are_dealt_out_over_brokers_and_rooms() -> None:
    scenario = Scenario(queues=5, topics=2, brokers=3, rooms=2)
    queues = scenario.all_queues()
    assert queues == sorted(queues)
    assert len(queues) == 10
    assert sorted({queue.broker for queue in queues}) == ["room-a@broker-a", "room-a@broker-c", "room-b@broker-b"]
    assert {queue.broker for queue in lay_out("t", 2, brokers=1, rooms=0)} == {"broker-a"}
    assert len({queue.broker for queue in lay_out("t", 60, brokers=60, rooms=30)}) == 60


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jion", f"event='jion': it begins with one of {', '.join(EVENTS)}"),
        ("join:", "event='join:': after the colon give how many members, e.g. join:2"),
        ("leave:0", "event='leave:0': after the colon"),
        ("leave:-1", "event='leave:-1': after the colon"),
    ],
)
def test_an_event_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Event.parse(text)
    assert str(caught.value).startswith(message)


def test_what_cannot_happen_is_named() -> None:
    with pytest.raises(ArgumentError, match="event='leave:5': only 5 members are there then, and one must stay"):
        Scenario(members=4, events=[Event("join"), Event("leave", 5)])
    with pytest.raises(ArgumentError, match="event='replace:9': only 4 members are there then"):
        Scenario(members=4, events=[Event("replace", 9)])
    with pytest.raises(ArgumentError, match="queues=0: give at least 1"):
        Scenario(queues=0)
    with pytest.raises(ArgumentError, match="rooms=-1"):
        Scenario(rooms=-1)
