"""Many groups in arrays, each against the strategies' own answer, queue by queue."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance import assign, strategy
from evenq.balance.groups import CELLS, Population, holders_in_groups, pool_of, simulate_groups
from evenq.balance.groups_draw import Array, Draw, Pool
from evenq.balance.measures import holders, least_moves, moved, peak, spread, unheld
from evenq.balance.rooms import room_of
from evenq.balance.scenario import Event, Scenario, room_names
from evenq.balance.simulation import names_for
from evenq.balance.sticky_group import StickyGroup
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from tests.harness.scale import examples

GROUPS = 12
Shares = dict[str, list[MessageQueue]]

scenarios = st.builds(
    Scenario,
    queues=st.integers(1, 20),
    members=st.integers(3, 6),
    topics=st.integers(1, 2),
    brokers=st.integers(1, 4),
    rooms=st.integers(1, 3),
    events=st.sampled_from(["join", "join:3", "leave", "leave:2", "crash", "replace", "replace:2"]).map(
        lambda text: (Event.parse(text),)
    ),
    seed=st.integers(0, 2**32),
)


class Answer:
    """What one group of a draw does under the strategy itself."""

    def __init__(self, draw: Draw, group: int) -> None:
        self.pool = draw.pool
        self.names = draw.names(group)
        self.queues = draw.queues(group)
        self.before, self.after = ([self.names[row] for row in rows[:, group]] for rows in (draw.before, draw.after))
        self.orders = [
            [members[place] for place in places[:, group]]
            for members, places in ((self.before, draw.order_before), (self.after, draw.order_after))
        ]
        self.rooms = {
            name: self.pool.room_names[self.pool.rooms[number]]
            for name, number in zip(self.names, draw.members[:, group], strict=True)
        }

    def shares(self, name: str) -> tuple[Shares, Shares]:
        if name == "STICKY":
            return self._sticky()
        if name == "CONFIG":
            fixed = self._topic_by_topic("AVG", self.before)
            return fixed, {member: fixed.get(member, []) for member in self.after}
        return self._topic_by_topic(name, self.before), self._topic_by_topic(name, self.after)

    def _topic_by_topic(self, name: str, members: list[str]) -> Shares:
        params: dict[str, dict[str, Any]] = {
            "CONSISTENT_HASH": {"virtual_nodes": self.pool.virtual_nodes},
            "MACHINE_ROOM": {"rooms": room_names(self.pool.scenario.rooms)},
            "MACHINE_ROOM_NEARBY-AVG": {"broker_room": room_of, "member_room": self.rooms.get},
        }
        chosen = strategy(name, **params.get(name, {}))
        shares: Shares = {member: [] for member in members}
        for topic in sorted({queue.topic for queue in self.queues}):
            for member, share in assign(chosen, [q for q in self.queues if q.topic == topic], members).items():
                shares[member] += share
        return shares

    def _sticky(self) -> tuple[Shares, Shares]:
        group = StickyGroup()
        found = []
        for members, order in zip((self.before, self.after), self.orders, strict=True):

            def as_drawn(acting: MutableSequence[str], order: list[str] = order) -> None:
                acting[:] = order

            group.settle(members, self.queues, as_drawn)
            found.append(group.assignment())
        return found[0], found[1]


def rows(shares: Shares, answer: Answer) -> list[int]:
    held_by = holders(shares)
    return [answer.names.index(held_by[queue]) if queue in held_by else -1 for queue in answer.queues]


@given(scenarios, st.sampled_from([1, 10]))
@settings(max_examples=examples(30), deadline=None)
def test_every_group_gets_the_strategys_own_answer(scenario: Scenario, virtual_nodes: int) -> None:
    pool = Pool(scenario, virtual_nodes, members=40)
    draw = pool.draw(GROUPS, np.random.default_rng(scenario.seed))
    answers = [Answer(draw, group) for group in range(GROUPS)]
    for name in names_for(scenario):
        found: tuple[Array, Array] = holders_in_groups(name, draw)
        for group, answer in enumerate(answers):
            for holder, shares in zip(found, answer.shares(name), strict=True):
                assert holder[:, group].tolist() == rows(shares, answer), name


@given(scenarios)
@settings(max_examples=examples(5), deadline=None)
def test_the_results_are_the_measures_added_up(scenario: Scenario) -> None:
    results = simulate_groups(scenario, GROUPS)
    # the same luck again
    (chunk,) = Population.of(scenario, GROUPS).chunks
    luck = np.random.default_rng([scenario.seed, 1, scenario.queues, scenario.members, 0])
    draw = pool_of(scenario, 10, chunk.of).draw(GROUPS, luck)
    answers = [Answer(draw, group) for group in range(GROUPS)]
    for result in results:
        pairs = [answer.shares(result.strategy) for answer in answers]
        to_even = [
            least_moves(before, answer.after, answer.queues) for answer, (before, _) in zip(answers, pairs, strict=True)
        ]
        moves = [len(moved(before, after)) for before, after in pairs]
        loads = sorted(len(share) for _, after in pairs for share in after.values())
        assert result.groups == GROUPS
        assert result.moved == sum(moves)
        assert result.to_even == sum(to_even)
        assert result.exact == sum(map(int.__eq__, moves, to_even))
        assert result.unheld == sum(
            len(unheld(after, answer.queues)) for answer, (_, after) in zip(answers, pairs, strict=True)
        )
        assert result.peaks == pytest.approx(sum(peak(after) for _, after in pairs))
        assert sorted(load for load, times in result.loads.items() for _ in range(times)) == loads
        assert result.mean_spread == pytest.approx(sum(spread(after) for _, after in pairs) / GROUPS)
        assert result.max_spread == max(spread(after) for _, after in pairs)
        if result.strategy == "STICKY":
            assert result.exact == GROUPS
            assert result.moved == result.least


def test_more_groups_than_fit_at_once_and_the_same_for_the_same_seed() -> None:
    scenario = Scenario(queues=4, members=2, events=[Event("join")], seed=5)
    groups = CELLS // 4 + 7
    one, other = (simulate_groups(scenario, groups, ["STICKY", "AVG"]) for _ in range(2))
    assert [result.groups for result in one] == [groups] * 2
    assert [(r.strategy, r.moved, r.spreads) for r in one] == [(r.strategy, r.moved, r.spreads) for r in other]


def test_members_of_a_pool_share_no_place_on_the_ring() -> None:
    pool = Pool(Scenario(events=[Event("join")]), virtual_nodes=3)
    assert pool.members == sorted(set(pool.members))
    draw = pool.draw(5000, np.random.default_rng(1))
    assert (np.diff(draw.members, axis=0) > 0).all()
    assert len(np.unique(draw.members, axis=1)[0]) > 4990, "groups repeat"


@pytest.mark.parametrize(
    ("scenario", "groups", "names", "message"),
    [
        (Scenario(), 10, None, "event='join, leave, crash, replace, restart': many groups take one event"),
        (Scenario(events=[Event("restart", 0)]), 10, None, "event='restart': many groups take one event"),
        (Scenario(events=[Event("join")]), 0, None, "groups=0: give at least 1"),
        (Scenario(events=[Event("join")]), 1, ["AVGG"], "strategy='AVGG': in many groups at once the strategies are"),
        (Scenario(events=[Event("join")], rooms=0), 1, ["MACHINE_ROOM"], "strategy='MACHINE_ROOM': it needs"),
    ],
)
def test_what_cannot_be_is_named(scenario: Scenario, groups: int, names: list[str] | None, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        simulate_groups(scenario, groups, names)
    assert str(caught.value).startswith(message)
