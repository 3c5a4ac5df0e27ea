"""The claim rule, under any order in which members act, action by action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count, islice, pairwise, permutations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance.measures import Assignment, least_moves, moved, spread, unheld
from evenq.balance.sticky import Action, Ask, Claims, GiveBack, Share, Stake, Steps, Take, extras, is_made_up, turn
from evenq.balance.sticky_group import LockTable, StickyGroup, drive, run
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from tests.harness.scale import examples, scaled

MEMBERS = tuple("abcdefghijkl")
ASKER = "(asking)"
ROUNDS = 3


def queues_of(count: int, topic: str = "orders") -> list[MessageQueue]:
    return [MessageQueue(topic, f"broker-{number % 2}", number) for number in range(count)]


def spreads(held: Assignment, queues: Iterable[MessageQueue]) -> dict[str, int]:
    """By topic, how many more of its queues one member has than another."""
    return {
        topic: spread({name: [queue for queue in mine if queue.topic == topic] for name, mine in held.items()})
        for topic in {queue.topic for queue in queues}
    }


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
        assert max(spreads(after, change.queues_after).values()) <= 1
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
    assert max(spreads(held, last.queues_after).values()) <= 1
    assert not unheld(held, last.queues_after)
    assert all(actor.claims is not None and actor.claims.settled for actor in actors.values())


TRANSITIONS = [
    "-a",
    "-abc",
    "a-ab",
    "a-abc",
    "ab-a",
    "ab-abc",
    "ab-bc",
    "ab-cd",
    "abc-a",
    "abc-bc",
    "abc-abd",
    "abc-ade",
]


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_small_groups_settle_in_every_order_of_turns(transition: str) -> None:
    """One or two topics of up to 4 queues, up to three members; in test-long any order in the third round, too."""
    before, after = transition.split("-")
    for sizes in [(one,) for one in range(1, 5)] + list(product(range(1, 5), repeat=2)):
        queues = [queue for number, size in enumerate(sizes) for queue in queues_of(size, f"topic-{number}")]
        start = StickyGroup()
        if before:
            start.settle(before, queues)
        orders = list(permutations(after))
        for turns in product(orders, orders, orders[: scaled(1, len(orders))]):
            group = StickyGroup()
            group.locks.owners = dict(start.locks.owners)
            left = iter(turns)

            def next_order(members: MutableSequence[str], left: Iterator[Sequence[str]] = left) -> None:
                members[:] = next(left)

            rounds = group.settle(after, queues, next_order)
            held = group.assignment()
            assert rounds <= ROUNDS
            assert not unheld(held, queues)
            assert spread(held) <= 1
            assert max(spreads(held, queues).values()) <= 1
            assert len(moved(start.assignment(), held)) == fewest_moves(start.assignment(), after, queues)


def fewest_moves(before: Assignment, members: Iterable[str], queues: list[MessageQueue]) -> int:
    """By trying everything: who holds one more of each topic."""
    members = list(members)
    sizes = Counter(queue.topic for queue in queues)
    had = {name: Counter(queue.topic for queue in mine) for name, mine in before.items()}
    found = []
    for chosen in product(*(combinations(members, size % len(members)) for size in sizes.values())):
        share = {
            name: {
                t: size // len(members) + (name in more) for (t, size), more in zip(sizes.items(), chosen, strict=True)
            }
            for name in members
        }
        totals = [sum(by_topic.values()) for by_topic in share.values()]
        if max(totals) - min(totals) <= 1:
            kept = sum(min(had.get(name, Counter())[t], size) for name in members for t, size in share[name].items())
            found.append(sum(counts.total() for counts in had.values()) - kept)
    return min(found)


def test_large_groups_settle_with_the_fewest_moves(rng: Random) -> None:
    """Many topics, many changes one after the other; the least is found by another algorithm."""
    for _ in range(scaled(12, 300)):
        queues = [
            queue
            for number in range(rng.choice([1, 2, 3, 5, 10, 20]))
            for queue in queues_of(rng.choice([1, 2, 3, 4, 8, 16]), f"topic-{number}")
        ]
        members = [f"m{number}" for number in range(rng.randint(1, 12))]
        newcomers = (f"n{number}" for number in count())
        group = StickyGroup()
        group.settle(members, queues, rng.shuffle)
        for _ in range(6):
            before = group.assignment()
            leaving, joining = rng.choice([(0, 1), (1, 0), (1, 1), (1, 2), (3, 0), (0, 3)])
            rng.shuffle(members)
            members = [*members[min(leaving, len(members) - 1) :], *islice(newcomers, joining)]
            assert group.settle(members, queues, rng.shuffle) <= ROUNDS
            after = group.assignment()
            assert not unheld(after, queues)
            assert spread(after) <= 1
            assert max(spreads(after, queues).values()) <= 1
            assert len(moved(before, after)) == flow_moves(before, members, queues)


def flow_moves(before: Assignment, members: list[str], queues: list[MessageQueue]) -> int:
    """The fewest moves by successive shortest paths: topics to members, as many members with a total of one more as
    there must be, an edge that a member cannot keep a queue by costs 1."""
    sizes = Counter(queue.topic for queue in queues)
    had = {name: Counter(queue.topic for queue in mine) for name, mine in before.items()}
    floors = {topic: size // len(members) for topic, size in sizes.items()}
    extra = {topic: size % len(members) for topic, size in sizes.items()}
    least_each, more = divmod(sum(extra.values()), len(members))
    flow = Flow()
    for topic, number in extra.items():
        flow.edge("source", topic, number, 0)
        for name in members:
            flow.edge(topic, ("member", name), 1, 0 if had.get(name, Counter())[topic] > floors[topic] else 1)
    for name in members:
        # the first of them must be used: far cheaper than anything else
        flow.edge(("member", name), "sink", least_each, -10_000)
        flow.edge(("member", name), "one more", 1, 0)
    flow.edge("one more", "sink", more, 0)
    assert flow.run("source", "sink") == sum(extra.values())
    edges = [(topic, ("member", name)) for topic in extra for name in members]
    kept_extra = sum(flow.left[edge] == flow.cost[edge] == 0 for edge in edges)
    kept = sum(min(had.get(name, Counter())[topic], floor) for name in members for topic, floor in floors.items())
    return sum(counts.total() for counts in had.values()) - kept - kept_extra


class Flow:
    """A network with capacities and costs."""

    def __init__(self) -> None:
        self.left: dict[tuple[Hashable, Hashable], int] = {}
        self.cost: dict[tuple[Hashable, Hashable], int] = {}

    def edge(self, start: Hashable, end: Hashable, capacity: int, cost: int) -> None:
        self.left[start, end], self.cost[start, end] = capacity, cost
        self.left[end, start], self.cost[end, start] = 0, -cost

    def run(self, source: Hashable, sink: Hashable) -> int:
        """As much as can flow, at the least cost; gives how much."""
        flowing = 0
        while path := self._cheapest(source, sink):
            for edge in path:
                self.left[edge] -= 1
                self.left[edge[1], edge[0]] += 1
            flowing += 1
        return flowing

    def _cheapest(self, source: Hashable, sink: Hashable) -> list[tuple[Hashable, Hashable]]:
        costs: dict[Hashable, int] = {source: 0}
        by: dict[Hashable, Hashable] = {}
        changed = True
        while changed:
            changed = False
            for (start, end), left in self.left.items():
                if left and start in costs and costs[start] + self.cost[start, end] < costs.get(end, 10**9):
                    costs[end], by[end], changed = costs[start] + self.cost[start, end], start, True
        if sink not in costs:
            return []
        path = [sink]
        while path[-1] != source:
            path.append(by[path[-1]])
        path.reverse()
        return list(pairwise(path))


class MemberGroup:
    """Members with subscriptions and views of their own, that take turns until nothing changes."""

    PATIENCE = 4

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.locks = LockTable()
        self.shares: dict[str, Share] = {}
        self.claims: dict[str, Claims] = {}
        self.answering = True

    def see(self, name: str, members: Iterable[str], queues: Iterable[MessageQueue]) -> None:
        """From now on this member sees these members and queues."""
        share = Share(name, list(members), list(queues))
        if self.shares.get(name) != share:
            self.shares[name] = share
            self.claims[name] = Claims((), settled=False)

    def crash(self, name: str) -> None:
        self.locks.give_back(name, self.locks.held_by(name))
        del self.shares[name], self.claims[name]

    def round(self, hanging: Collection[str] = ()) -> None:
        """Every member that does not hang takes a turn; their actions run into each other."""
        running: dict[str, tuple[Steps[Claims], Action | None]] = {}
        for name in self.shares.keys() - set(hanging):
            waited = self.claims[name].waited
            steps = turn(self.shares[name], self.locks.held_by(name), waited=waited, patience=self.PATIENCE)
            running[name] = steps, None
        while running:
            name = self.rng.choice(sorted(running))
            steps, action = running[name]
            try:
                running[name] = steps, next(steps) if action is None else steps.send(self.answer(name, action))
            except StopIteration as end:
                self.claims[name] = end.value
                del running[name]

    def answer(self, name: str, action: Action) -> set[MessageQueue]:
        return self.locks.carry_out(name, action) if self.answering else set()

    def rounds_to_settle(self, hanging: Collection[str] = (), limit: int = 40) -> int:
        for number in range(1, limit + 1):
            locked = dict(self.locks.owners)
            self.round(hanging)
            if locked == self.locks.owners and all(
                claims.settled for name, claims in self.claims.items() if name not in hanging
            ):
                return number
        raise AssertionError(f"not settled in {limit} rounds: {self.claims}")

    def held(self) -> dict[str, list[MessageQueue]]:
        return {name: [lock for lock in self.locks.held_by(name) if not is_made_up(lock)] for name in self.shares}

    def check(self, subscribed: dict[str, list[str]], queues: list[MessageQueue]) -> None:
        """Each queue has a holder, and each topic is spread evenly among its subscribers."""
        held = self.held()
        assert not unheld(held, queues)
        for topic, subscribers in subscribed.items():
            counts = [sum(queue.topic == topic for queue in held[name]) for name in subscribers]
            assert max(counts) - min(counts) <= 1, topic
            assert sum(counts) == sum(queue.topic == topic for queue in queues), topic


def test_each_topic_is_spread_among_those_that_subscribe_to_it(rng: Random) -> None:
    moves = least = 0
    for _ in range(scaled(40, 2000)):
        topics = [f"topic-{number}" for number in range(rng.randint(2, 5))]
        queues = [queue for topic in topics for queue in queues_of(rng.choice([1, 2, 3, 5, 8]), topic)]
        everybody = [f"m{number}" for number in range(rng.randint(2, 7))]
        wants = {name: rng.sample(topics, rng.randint(1, len(topics))) for name in everybody}
        group = MemberGroup(rng)
        first = True
        for _ in range(3):
            members = everybody if first else rng.sample(everybody, rng.randint(1, len(everybody)))
            for name in group.shares.keys() - set(members):
                group.crash(name)
            before = group.held()
            for name in members:
                group.see(name, members, [queue for queue in queues if queue.topic in wants[name]])
            assert group.rounds_to_settle() <= MemberGroup.PATIENCE + MemberGroup.PATIENCE // 2 + 1 + ROUNDS
            subscribed = {topic: [name for name in members if topic in wants[name]] for topic in topics}
            subscribed = {topic: names for topic, names in subscribed.items() if names}
            readable = [queue for queue in queues if queue.topic in subscribed]
            group.check(subscribed, readable)
            check_totals(group.held(), subscribed)
            if not first:
                moves += len(moved(before, group.held()))
                for topic, names in subscribed.items():
                    own = {name: [queue for queue in mine if queue.topic == topic] for name, mine in before.items()}
                    least += least_moves(own, names, [queue for queue in queues if queue.topic == topic])
            first = False
    # the least of each topic by itself, as if totals did not count
    assert least <= moves <= 1.5 * least


def check_totals(held: Assignment, subscribed: dict[str, list[str]]) -> None:
    """Topics that the same members share are even together."""
    for members in subscribed.values():
        topics = {topic for topic, names in subscribed.items() if names == members}
        totals = [sum(queue.topic in topics for queue in held[name]) for name in members]
        assert max(totals) - min(totals) <= 1, topics


def test_members_that_see_other_lists_for_a_while_agree_in_the_end(rng: Random) -> None:
    """For longer than anybody waits, some see other members and other queues. Nobody loses a queue that it reads."""
    for _ in range(scaled(40, 2000)):
        queues = [*queues_of(rng.randint(1, 12)), *queues_of(rng.randint(1, 6), "parcels")]
        members = [f"m{number}" for number in range(rng.randint(2, 6))]
        group = MemberGroup(rng)
        for name in members:
            others = {other for other in members if rng.random() < 0.8} | {name}
            group.see(name, others, rng.sample(queues, rng.randint(1, len(queues))))
        for _ in range(rng.randrange(20)):
            group.round()
        for name in members:
            group.see(name, members, queues)
        assert group.rounds_to_settle() <= ROUNDS + 1
        group.check({"orders": members, "parcels": members}, queues)
        assert spread(group.held()) <= 1


def test_what_a_hanging_member_does_not_hold_is_shared_by_the_others(rng: Random) -> None:
    queues = [*queues_of(7), *queues_of(5, "parcels")]
    group = MemberGroup(rng)
    for name in "abc":
        group.see(name, "abc", queues)
    group.rounds_to_settle(hanging="c")
    group.check({"orders": ["a", "b"], "parcels": ["a", "b"]}, queues)
    assert {claims.all_present for name, claims in group.claims.items() if name in "ab"} == {False}
    assert spread({name: mine for name, mine in group.held().items() if name in "ab"}) <= 1
    # it goes on: its bids complete those of the others, which look now and then
    assert group.rounds_to_settle() <= ROUNDS + 1
    group.check({"orders": ["a", "b", "c"], "parcels": ["a", "b", "c"]}, queues)
    assert spread(group.held()) <= 1
    assert all(claims.all_present for claims in group.claims.values())


def test_while_no_broker_answers_nobody_gives_up_a_queue(rng: Random) -> None:
    queues = queues_of(8)
    group = MemberGroup(rng)
    for name in "ab":
        group.see(name, "ab", queues)
    group.rounds_to_settle()
    before = group.held()
    group.answering = False
    for name in "ab":
        group.see(name, "abc", queues)
    for _ in range(3 * MemberGroup.PATIENCE):
        group.round()
        assert group.held() == before
    group.answering = True
    group.see("c", "abc", queues)
    group.rounds_to_settle()
    assert sorted(len(mine) for mine in group.held().values()) == [2, 3, 3]
    assert len(moved(before, group.held())) == 2


def test_a_member_that_bids_nothing_is_not_waited_for_for_ever() -> None:
    share = Share("a", ["a", "hangs"], queues_of(3))
    locks = LockTable()
    claims = Claims((), settled=False)
    turns: list[int] = []
    while not claims.settled and len(turns) < 10:
        claims = run(turn(share, locks.held_by("a"), waited=claims.waited, patience=4), locks, "a")
        turns.append(len(claims.queues))
    assert turns == [1, 1, 1, 1, 1, 1, 3]
    assert not claims.all_present


def test_members_that_start_together_do_not_contend() -> None:
    """Each begins at its own place: one request for its queues, nothing refused."""
    members, queues = [f"m{number}" for number in range(8)], queues_of(64)
    locks = LockTable()
    for name in members:
        refused: list[MessageQueue] = []

        def answer(action: Action, name: str = name, refused: list[MessageQueue] = refused) -> set[MessageQueue]:
            answer = locks.carry_out(name, action)
            if isinstance(action, Take):
                refused += set(action.locks) - answer
            return answer

        claims = drive(turn(Share(name, members, queues), []), answer)
        assert len(claims.queues) == 8
        assert not refused


def test_what_was_taken_last_is_given_back_first() -> None:
    queues = queues_of(4)
    locks = LockTable(dict.fromkeys([queues[3], queues[0], queues[2], queues[1]], "a"))
    for name in "ab":
        run(turn(Share(name, "ab", queues), locks.held_by(name)), locks, name)
    steps = turn(Share("a", "ab", queues), locks.held_by("a"))
    assert isinstance(action := next(steps), Ask)
    assert steps.send(locks.carry_out("a", action)) == GiveBack((queues[2], queues[1]))


def test_bids_are_names_of_their_own_time() -> None:
    share = Share("a", ["a", "b", "c"], [*queues_of(5), *queues_of(4, "parcels")])
    later = Share("a", ["a", "b"], share.queues)
    other = Share("a", ["a", "b", "c"], [*queues_of(4), *queues_of(5, "parcels")])
    for one in (later, other):
        assert share.locks & one.locks == set(share.queues) & set(one.queues)
        assert not set(share.my_bids) & set(one.my_bids)
    assert all(map(is_made_up, share.my_bids))
    assert {lock.broker for lock in share.my_bids} == {"broker-0"}
    same_topic = Share("b", ["a", "b", "c"], queues_of(5))
    second, others_second = share.second_bids["orders"], same_topic.second_bids["orders"]
    assert second.pair("orders", "c") == others_second.pair("orders", "c"), "members with other topics find them"


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sets(st.sampled_from("abcd"), min_size=1), st.sets(st.sampled_from("abcd"))),
        min_size=1,
        max_size=3,
    )
)
@settings(max_examples=examples(200), deadline=None)
def test_extras_are_what_trying_everything_finds(topics: list[tuple[int, set[str], set[str]]]) -> None:
    stakes = tuple(Stake(size, tuple(sorted(names)), frozenset(more & names)) for size, names, more in topics)

    def value(chosen: Iterable[Collection[str]]) -> tuple[int, int]:
        totals: Counter[str] = Counter()
        kept = 0
        for stake, more in zip(stakes, chosen, strict=True):
            kept += len(stake.holding_more & set(more))
            totals.update({name: stake.queues // len(stake.members) + (name in more) for name in stake.members})
        return sum(total * total for total in totals.values()), -kept

    every = product(*(combinations(stake.members, stake.queues % len(stake.members)) for stake in stakes))
    chosen = extras(stakes)
    assert [len(more) for more in chosen] == [stake.queues % len(stake.members) for stake in stakes]
    assert value(chosen) == min(map(value, every))


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"me='x': it must be one of the members \['a', 'b'\]"):
        Share("x", ["b", "a"], queues_of(1))
    with pytest.raises(ArgumentError, match=r"queues=\[\]: give at least one queue"):
        Share("a", ["a"], [])
