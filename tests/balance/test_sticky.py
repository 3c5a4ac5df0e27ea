"""The claim rule, under any order in which members act, action by action."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance.measures import Assignment, least_moves, moved, spread, unheld
from evenq.balance.sticky import Action, Ask, Claims, GiveBack, Share, Steps, Take, turn
from evenq.balance.sticky_group import LockTable, StickyGroup
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from tests.harness.scale import examples

MEMBERS = tuple("abcdefghijkl")
ASKER = "(asking)"
ROUNDS = 3


def queues_of(count: int, topic: str = "orders") -> list[MessageQueue]:
    return [MessageQueue(topic, f"broker-{number % 2}", number) for number in range(count)]


@dataclass(frozen=True)
class Change:
    """A settled group, and what it is to become."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    queues_before: tuple[MessageQueue, ...]
    queues_after: tuple[MessageQueue, ...]
    seed: int


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Any members to any other, and in half of the cases any queues to any other, of several topics."""
    before = draw(st.sets(st.sampled_from(MEMBERS), min_size=1, max_size=7))
    after = draw(st.sets(st.sampled_from(MEMBERS), min_size=1, max_size=7))
    queues = [*queues_of(draw(st.integers(1, 24))), *queues_of(draw(st.integers(0, 8)), "parcels")]
    queues_after = queues
    if draw(st.booleans()):
        kept = draw(st.integers(0, len(queues)))
        shuffled = draw(st.permutations(queues))
        queues_after = [*shuffled[:kept], *queues_of(draw(st.integers(0 if kept else 1, 12)), "refunds")]
    return Change(
        tuple(sorted(before)), tuple(sorted(after)), tuple(queues), tuple(queues_after), draw(st.integers(0, 2**32))
    )


@dataclass
class Actor:
    """A member that takes turn after turn, one action at a time."""

    name: str
    share: Share
    locks: LockTable
    two_step_ask: bool
    claims: Claims | None = None
    turns: int = 0
    held: set[MessageQueue] = field(default_factory=set)
    _steps: Iterator[None] | None = None

    @property
    def idle(self) -> bool:
        return self._steps is None

    def step(self) -> None:
        """The next action, and a new turn where the last one ended."""
        if self._steps is None:
            self._steps = self._run(turn(self.share, self.locks.held_by(self.name), waited=0, patience=10**9))
        if next(self._steps, "ended") == "ended":
            self._steps = None
            self.turns += 1

    def _run(self, steps: Steps[Claims]) -> Iterator[None]:
        try:
            action = next(steps)
            while True:
                # what is asked and what is answered may lie apart: others act in between
                yield
                answer: set[MessageQueue] = set()
                if isinstance(action, Ask) and self.two_step_ask:
                    answer = self.locks.take(ASKER, action.locks)
                    yield
                    self.locks.give_back(ASKER, action.locks)
                else:
                    answer = self.locks.carry_out(self.name, action)
                self._note(action, answer)
                action = steps.send(answer)
        except StopIteration as end:
            self.claims = end.value

    def _note(self, action: Action, answer: set[MessageQueue]) -> None:
        match action:
            case Take():
                self.held |= answer
            case GiveBack(locks):
                self.held -= set(locks)


class Troupe:
    """A settled group whose members then act in any order on a change."""

    def __init__(self, change: Change, two_step_ask: bool) -> None:
        self.change = change
        self.random = Random(change.seed)
        group = StickyGroup()
        group.settle(change.before, change.queues_before, self.random.shuffle)
        self.before: Assignment = group.assignment()
        self.locks = group.locks
        self.actors = {
            name: Actor(name, Share(name, change.before, change.queues_before), self.locks, two_step_ask)
            for name in change.before
        }
        for name, actor in self.actors.items():
            actor.held = set(self.locks.held_by(name))
        for name in set(change.after) - set(change.before):
            self.actors[name] = Actor(name, self.new_share(name), self.locks, two_step_ask)

    def new_share(self, name: str) -> Share:
        return Share(name, self.change.after, self.change.queues_after)

    def notice(self, name: str) -> None:
        self.actors[name].share = self.new_share(name)

    def drop(self, name: str) -> None:
        """What a member that is gone held is free, all at once."""
        self.locks.give_back(name, self.locks.held_by(name))
        del self.actors[name]

    def step(self, name: str) -> None:
        self.actors[name].step()
        everything = [lock for actor in self.actors.values() for lock in actor.held]
        assert len(everything) == len(set(everything)), "two members think that they hold the same lock"

    def check(self) -> None:
        change = self.change
        after = {
            name: [lock for lock in self.locks.held_by(name) if lock in change.queues_after] for name in change.after
        }
        assert not unheld(after, change.queues_after)
        assert spread(after) <= 1
        assert len(moved(self.before, after)) == least_moves(self.before, change.after, change.queues_after)
        for name, actor in self.actors.items():
            assert actor.claims is not None
            assert actor.claims.settled
            assert set(actor.claims.queues) == set(after[name])
            assert actor.held == set(self.locks.held_by(name)) <= actor.share.locks


@given(changes(), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_in_rounds_it_settles_with_the_fewest_moves(change: Change, two_step_ask: bool) -> None:
    troupe = Troupe(change, two_step_ask)
    for name in set(change.before) - set(change.after):
        troupe.drop(name)
    for name in change.after:
        troupe.notice(name)
    for _ in range(ROUNDS):
        goal = {name: actor.turns + 1 for name, actor in troupe.actors.items()}
        while acting := sorted(name for name, actor in troupe.actors.items() if actor.turns < goal[name]):
            troupe.step(troupe.random.choice(acting))
    troupe.check()


@given(changes(), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_in_any_order_at_all_it_settles_with_the_fewest_moves(change: Change, two_step_ask: bool) -> None:
    """Members see the change when they see it, some act ten times before another acts once."""
    troupe = Troupe(change, two_step_ask)
    random = troupe.random
    to_come = [
        *((troupe.drop, name) for name in change.before if name not in change.after),
        *((troupe.notice, name) for name in change.before if name in change.after),
    ]
    random.shuffle(to_come)
    pace = {name: random.choice([1, 3, 30]) for name in sorted(troupe.actors)}
    while to_come:
        if random.random() < 0.1:
            happens, name = to_come.pop()
            happens(name)
        acting = sorted(troupe.actors)
        troupe.step(random.choices(acting, [pace[name] for name in acting])[0])

    # everybody knows now: the rounds begin, with turns that nobody waits for
    acting = sorted(troupe.actors)
    for _ in range(ROUNDS):
        # a turn that is under way does not count: it may have begun with the old lists
        goal = {name: actor.turns + (1 if actor.idle else 2) for name, actor in troupe.actors.items()}
        while any(troupe.actors[name].turns < goal[name] for name in acting):
            troupe.step(random.choices(acting, [pace[name] for name in acting])[0])
    for name in acting:
        while not troupe.actors[name].idle:
            troupe.step(name)
    troupe.check()


@given(changes())
@settings(max_examples=examples(100), deadline=None)
def test_a_settled_group_stays_as_it_is(change: Change) -> None:
    group = StickyGroup()
    group.settle(change.before, change.queues_before)
    owners = dict(group.locks.owners)
    assert group.settle(change.before, change.queues_before, Random(change.seed).shuffle) == 1
    assert group.locks.owners == owners


@given(st.lists(changes(), min_size=2, max_size=5), st.integers(0, 2**32))
@settings(max_examples=examples(100), deadline=None)
def test_a_change_that_comes_before_the_last_one_is_settled_still_settles(chain: list[Change], seed: int) -> None:
    random = Random(seed)
    locks = LockTable()
    actors: dict[str, Actor] = {}
    last = chain[-1]
    for change in chain:
        for name in set(actors) - set(change.after):
            locks.give_back(name, locks.held_by(name))
            del actors[name]
        for name in change.after:
            share = Share(name, change.after, change.queues_after)
            actors.setdefault(name, Actor(name, share, locks, two_step_ask=False)).share = share
        for _ in range(random.randrange(40)):
            actors[random.choice(sorted(actors))].step()
    for _ in range(ROUNDS + 1):  # one more, for the turns that were under way
        goal = {name: actor.turns + 1 for name, actor in actors.items()}
        while acting := sorted(name for name, actor in actors.items() if actor.turns < goal[name]):
            actors[random.choice(acting)].step()
    held = {name: [lock for lock in locks.held_by(name) if lock in last.queues_after] for name in last.after}
    assert spread(held) <= 1
    assert not unheld(held, last.queues_after)
    assert all(actor.claims is not None and actor.claims.settled for actor in actors.values())


def test_a_member_that_never_puts_its_mark_is_not_waited_for_for_ever() -> None:
    share = Share("a", ["a", "hangs"], queues_of(3))
    locks = LockTable()
    claims = Claims((), None, settled=False)
    turns = 0
    while not claims.settled and turns < 10:
        turns += 1
        steps = turn(share, locks.held_by("a"), waited=claims.waited, patience=4)
        try:
            action = next(steps)
            while True:
                action = steps.send(locks.carry_out("a", action))
        except StopIteration as end:
            claims = end.value
    assert (turns, len(claims.queues)) == (5, 2)


def test_members_that_start_together_do_not_contend() -> None:
    """Each begins at its own place: one request for its queues, nothing refused."""
    members, queues = [f"m{number}" for number in range(8)], queues_of(64)
    locks = LockTable()
    for name in members:
        steps = turn(Share(name, members, queues), [])
        action = next(steps)
        assert isinstance(action, Take)
        answer = locks.carry_out(name, action)
        assert len(answer) == 8
        with pytest.raises(StopIteration):
            steps.send(answer)


def test_what_was_taken_last_is_given_back_first() -> None:
    queues = queues_of(4)
    steps = turn(Share("a", ["a", "b"], queues), [queues[3], queues[0], queues[2], queues[1]])
    assert next(steps) == GiveBack((queues[2], queues[1]))


def test_tokens_and_marks_are_names_of_their_own_time() -> None:
    share = Share("a", ["a", "b", "c"], queues_of(5))
    later = Share("a", ["a", "b"], queues_of(5))
    assert len(share.tokens) == 2
    assert share.mark[0] in share.marks
    assert set(share.mark) <= share.locks <= set(share.all_locks)
    assert {lock for lock in share.locks if lock not in later.locks} == {*share.tokens, *share.mark}
    assert {lock.broker for lock in (*share.tokens, *share.marks)} == {"broker-0"}
    assert not Share("a", ["a"], queues_of(5)).marks, "no tokens, nothing to wait for"


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"me='x': it must be one of the members \['a', 'b'\]"):
        Share("x", ["b", "a"], queues_of(1))
    with pytest.raises(ArgumentError, match=r"queues=\[\]: give at least one queue"):
        Share("a", ["a"], [])
