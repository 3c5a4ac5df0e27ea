"""``STICKY``: topics spread evenly, then totals, with the fewest moves. Claims by locks, without a coordinator.

Goals, in this order: every queue has a holder; the queues of each topic differ by at most one among the members that
subscribe to it; the totals differ by at most one; the fewest queues move.

Every queue has a lock on its broker, and the member that has the lock has the queue. A member knows the members of its
group, the queues of the topics that it subscribes to, what it holds, and what the locks answer. Of a topic with q
queues and s subscribers, ``floor, extra = divmod(q, s)``: each subscriber holds ``floor`` queues, and ``extra`` of them
hold one more. The only question is which. It is answered by *bids* that all members read:

1. A member puts a bid on each topic: YES if it holds more than ``floor`` queues of it, NO if not. A bid is a lock on a
   made-up queue, one of a pair of which exactly one gets locked, so it tells its value and that it is there at once.
2. When the bids of all members are there, each member computes from them who holds one more of which topic
   (:func:`extras`): as many members that bid YES as possible, without making the totals differ by more than one. All
   members read the same bids, so all compute the same answer.
3. A member gives back what it holds over its share, the queues that it got last, and takes free queues up to its share.

| what a member sees at its turn | it keeps | it takes free queues |
| --- | --- | --- |
| it is alone | everything | all |
| the bids of all members | its share | up to its share |
| bids are missing, for fewer turns than ``patience`` | everything | up to ``floor``, if all were subscribers |
| … for up to half as many turns more, second bids are put | everything | up to ``floor``, if all were subscribers |
| … for longer | its share among those present | up to that share |

Why that moves the fewest: whatever the division, a member keeps at most ``floor`` queues of a topic, and one more if it
is one of the ``extra`` members. So the moves depend only on how many of the members that have one to keep are chosen,
and :func:`extras` chooses the most that the first three goals allow. Nobody gives anything back before all bids are
there, so what is chosen from is what the members had before the change.

Why every queue gets a holder: shares are computed anew from the bids at every turn, so members agree as soon as they
read the same bids, and the shares of all subscribers add up to the topic. No lock but that of the queue itself stands
between a free queue and the member whose share it is. A bid of an earlier time is in nobody's way: names of bids carry
a digest of the members and queues that they were meant for.

*Present* members: a member that hangs, or does not subscribe to a topic, bids nothing. The others wait for ``patience``
turns. Then everybody puts a second bid, by topic this time, whose name depends on that topic alone; half as many turns
later the members whose second bids on a topic are there share it. So members that subscribe to different topics share
each topic among its subscribers. Totals are then even over the topics that the same members share, and moves can be a
few more than the fewest, for second bids compare with ``floor`` of all members. When a missing bid is put after all,
the shares are those of all members again.

A *turn* is one run of :func:`turn` by one member, begun with fresh lists of queues and members. A *round* is the
shortest time in which every member begins and ends a turn; the turns of different members may run into each other
action by action, in any order. When a settled group changes (members join, leave, crash, are replaced, queues and
topics come and go, all at once if need be) and all members subscribe to the same topics, it is settled again within 3
rounds: bids in the first, giving back in the second, taking in the third. Never do two members have the same queue.
The rounds begin when all members see the change and the locks of those that crashed are free. A member that sees it
later than the others, by less than ``patience``, costs time and no moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from evenq.balance.ordering import sorted_members, sorted_queues
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["PATIENCE", "Action", "Ask", "Claims", "GiveBack", "Share", "Stake", "Take", "extras", "is_made_up", "turn"]

_MADE_UP = "%STICKY%"

# Turns in a row that a member waits for the bids of others: one that hangs must not keep a queue from being read.
PATIENCE = 20


class Stake(NamedTuple):
    """A topic to be shared: how many queues it has, who shares it, and who of them holds more than ``floor`` of it."""

    queues: int
    members: tuple[str, ...]
    holding_more: frozenset[str] = frozenset()


@lru_cache(maxsize=32)
def extras(stakes: tuple[Stake, ...]) -> tuple[frozenset[str], ...]:
    """Who holds one queue more than ``floor`` of each topic.

    First the totals are as even as they can be, then as many as can be of those that hold more keep it. Where that
    leaves a choice, the order of topics and members decides, so everybody comes to the same answer.

    >>> one, two = Stake(3, ("x", "y"), frozenset("x")), Stake(5, ("x", "y"), frozenset("x"))
    >>> [sorted(members) for members in extras((one, two))]
    [['x'], ['y']]
    """
    division = _Division(stakes)
    while cycle := division.find_improvement():
        division.apply(cycle)
    return tuple(frozenset(division.members[number] for number in given) for given in division.given)


class _Division:
    """A division of the extra queues, made even at first and then improved until nothing is left to improve.

    This is a minimum-cost flow from topics to members. An edge that a member does not hold more of costs 1; a total
    that grows from n to n + 1 costs n + 1 times more than all edges together. So the cheapest flow has the most even
    totals, and among those the fewest moves. A flow is the cheapest one when no cycle of changes has a negative cost.
    """

    def __init__(self, stakes: Sequence[Stake]) -> None:
        self.members = list(dict.fromkeys(member for stake in stakes for member in stake.members))
        number = {member: place for place, member in enumerate(self.members)}
        self._costs: list[dict[int, int]] = []
        self._totals = [0] * len(self.members)
        counts: list[int] = []
        for stake in stakes:
            floor, extra = divmod(stake.queues, len(stake.members))
            counts.append(extra)
            self._costs.append({number[member]: int(member not in stake.holding_more) for member in stake.members})
            for member in stake.members:
                self._totals[number[member]] += floor
        self._weight = sum(counts) + 1
        self.given = [self._hand_out(extra, costs) for extra, costs in zip(counts, self._costs, strict=True)]

    def _hand_out(self, extra: int, costs: Mapping[int, int]) -> set[int]:
        """The members with the smallest totals; of equals one that keeps a queue, and of those the first."""
        chosen = sorted(costs, key=lambda place: (self._totals[place], costs[place]))[:extra]
        for place in chosen:
            self._totals[place] += 1
        return set(chosen)

    def find_improvement(self) -> list[tuple[int, int]]:
        """A cycle of negative cost in the graph of changes, as its edges; empty where there is none.

        Nodes are the topics, the members, and one that stands for the totals.
        """
        if len(self.given) == 1:
            return []
        edges = self._edges()
        size = len(self.given) + len(self.members) + 1
        cost = [0] * size
        before = [-1] * size
        while True:
            changed = False
            for start, end, price in edges:
                if cost[start] + price < cost[end]:
                    cost[end], before[end] = cost[start] + price, start
                    changed = True
            if not changed:
                return []
            if cycle := _cycle(before):
                return cycle

    def _edges(self) -> list[tuple[int, int, int]]:
        topics, totals = len(self.given), len(self.given) + len(self.members)
        edges = []
        for topic, (given, costs) in enumerate(zip(self.given, self._costs, strict=True)):
            for member, cost in costs.items():
                if member in given:
                    edges.append((topics + member, topic, -cost))
                elif given:
                    edges.append((topic, topics + member, cost))
        for member, total in enumerate(self._totals):
            edges.append((topics + member, totals, self._weight * (total + 1)))
            edges.append((totals, topics + member, -self._weight * total))
        return edges

    def apply(self, cycle: Iterable[tuple[int, int]]) -> None:
        topics = len(self.given)
        for start, end in cycle:
            if start < topics:
                self.given[start].add(end - topics)
                self._totals[end - topics] += 1
            elif end < topics:
                self.given[end].remove(start - topics)
                self._totals[start - topics] -= 1


def _cycle(before: Sequence[int]) -> list[tuple[int, int]]:
    """The edges of a cycle among these predecessors (-1: none)."""
    seen = [-1] * len(before)
    for start in range(len(before)):
        node = start
        while node != -1 and seen[node] == -1:
            seen[node] = start
            node = before[node]
        if node != -1 and seen[node] == start:
            edges = [(before[node], node)]
            while edges[-1][0] != node:
                edges.append((before[edges[-1][0]], edges[-1][0]))
            return edges
    return []


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Let these go. What is answered does not matter, and the turn may go on while a queue is still being left."""

    locks: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Lock all of these that can be had. The answer: those that are held now."""

    locks: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """See which of these nobody holds; they stay as they are. The answer: those that are free.

    A broker can only lock and unlock, so the way to ask is to lock under a name that all members use for asking,
    and to unlock at once what was granted. Two that ask do not disturb each other then, and a lock that is refused
    under this name does belong to a member.
    """

    locks: tuple[MessageQueue, ...]


Action: TypeAlias = GiveBack | Take | Ask
Answer: TypeAlias = Set[MessageQueue]
T = TypeVar("T")
Steps: TypeAlias = Generator[Action, Answer, T]


class _Bids:
    """The names of the bids of all members on some topics, all on one broker: one request asks for them."""

    def __init__(self, kind: str, topics: tuple[str, ...], members: tuple[str, ...], queues: tuple[MessageQueue, ...]):
        self.topics = topics
        self._name = f"{_MADE_UP}{kind}-{_digest(members, queues)}"
        self._broker = queues[0].broker
        self._topic_number = {topic: number for number, topic in enumerate(topics)}
        self._member_number = {member: number for number, member in enumerate(members)}

    def pair(self, topic: str, member: str) -> tuple[MessageQueue, MessageQueue]:
        """NO and YES."""
        number = 2 * (self._topic_number[topic] * len(self._member_number) + self._member_number[member])
        no, yes = (MessageQueue(self._name, self._broker, number + value) for value in (0, 1))
        return no, yes

    def of(self, member: str) -> tuple[MessageQueue, ...]:
        return tuple(lock for topic in self.topics for lock in self.pair(topic, member))


@dataclass(frozen=True)
class Share:
    """What one member knows of its group, and the names of the locks that decide what it holds.

    >>> share = Share("b", ["a", "b"], [MessageQueue("orders", "broker-a", n) for n in range(5)])
    >>> share.floor("orders"), [bid.queue_id for bid in share.my_bids]
    (2, [2, 3, 2, 3])
    """

    me: str
    members: Sequence[str]
    queues: Sequence[MessageQueue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(sorted_members(set(self.members))))
        object.__setattr__(self, "queues", tuple(sorted_queues(set(self.queues))))
        if not self.queues:
            raise ArgumentError("queues", [], "give at least one queue of the subscription")
        if self.me not in self.members:
            raise ArgumentError("me", self.me, f"it must be one of the members {list(self.members)}")

    @cached_property
    def topics(self) -> Mapping[str, tuple[MessageQueue, ...]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in self.queues:
            found.setdefault(queue.topic, []).append(queue)
        return {topic: tuple(queues) for topic, queues in found.items()}

    def floor(self, topic: str) -> int:
        """What every subscriber holds of the topic, were all members subscribers."""
        return len(self.topics[topic]) // len(self.members)

    @cached_property
    def first_bids(self) -> _Bids:
        """By which members with the same view bid on all topics that do not divide evenly; on one at least."""
        odd = tuple(topic for topic, queues in self.topics.items() if len(queues) % len(self.members))
        return _Bids("1", odd or tuple(self.topics)[:1], tuple(self.members), tuple(self.queues))

    @cached_property
    def second_bids(self) -> Mapping[str, _Bids]:
        """By topic: by which the members that see the same members and the same queues of the topic bid on it."""
        return {topic: _Bids("2", (topic,), tuple(self.members), queues) for topic, queues in self.topics.items()}

    @cached_property
    def my_bids(self) -> tuple[MessageQueue, ...]:
        """All bids that this member could put."""
        return tuple(bid for bids in (self.first_bids, *self.second_bids.values()) for bid in bids.of(self.me))

    @cached_property
    def locks(self) -> frozenset[MessageQueue]:
        """All that this member may hold. What else it holds is of an earlier time."""
        return frozenset((*self.queues, *self.my_bids))

    def from_my_place(self, locks: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
        """The locks, beginning at a place of this member's own: members that act at once then seldom meet."""
        start = self._rank * len(locks) // len(self.members)
        return (*locks[start:], *locks[:start])

    @cached_property
    def _rank(self) -> int:
        return self.members.index(self.me)


@lru_cache(maxsize=16)
def _digest(members: tuple[str, ...], queues: tuple[MessageQueue, ...]) -> str:
    text = "\n".join((*members, "", *map(str, queues)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_made_up(lock: MessageQueue) -> bool:
    """Whether this is a bid, and no queue of any topic."""
    return lock.topic.startswith(_MADE_UP)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a member holds at the end of its turn.

    ``settled``: the member holds its share. Otherwise another turn should follow soon. ``waited`` is handed on to the
    next turn, 0 where members or queues have changed. ``all_present``: no bid is missing. Otherwise another turn should
    follow now and then, for a bid that is put later changes the shares.
    """

    queues: tuple[MessageQueue, ...]
    settled: bool
    waited: int = 0
    all_present: bool = True


def turn(share: Share, held: Iterable[MessageQueue], *, waited: int = 0, patience: int = PATIENCE) -> Steps[Claims]:
    """One turn of one member: yields actions, is sent their answers, returns the claims.

    ``held`` is everything that the member has locked, oldest first. It may be dropped after any action: all that
    it knows is in the locks, and the next turn begins from them. To drive it::

        steps = turn(share, held)
        try:
            action = next(steps)
            while True:
                action = steps.send(await carry_out(action))
        except StopIteration as end:
            claims = end.value
    """
    held = tuple(held)
    if stale := tuple(lock for lock in held if lock not in share.locks):
        yield GiveBack(stale)
    mine: dict[str, list[MessageQueue]] = {topic: [] for topic in share.topics}
    for lock in held:
        if lock in share.locks and not is_made_up(lock):
            mine[lock.topic].append(lock)
    my_bids = {lock for lock in held if lock in share.locks and is_made_up(lock)}

    # a queue that is mine whatever the bids say waits for none
    yield from _fill(share, mine, {topic: share.floor(topic) for topic in mine})
    stakes, all_present = yield from _read_bids(share, mine, my_bids, waited, patience)
    sizes = _sizes(share.me, stakes) if stakes else {}
    if over := tuple(queue for topic, size in sizes.items() for queue in mine[topic][size:]):
        yield GiveBack(over)
        mine = {topic: queues[: sizes[topic]] for topic, queues in mine.items()}
    yield from _fill(share, mine, sizes)

    settled = bool(sizes) and all(len(mine[topic]) == size for topic, size in sizes.items())
    queues = tuple(queue for queues in mine.values() for queue in queues)
    return Claims(queues, settled, 0 if all_present else waited + 1, all_present)


def _sizes(me: str, stakes: Mapping[str, Stake]) -> dict[str, int]:
    """Topic → how many of its queues are mine.

    Topics that the same members share are divided together: each of those members knows all of these topics, and may
    not know of others that some of them subscribe to. So all of them compute the same.
    """
    together: dict[tuple[str, ...], dict[str, Stake]] = {}
    for topic, stake in stakes.items():
        together.setdefault(stake.members, {})[topic] = stake
    sizes = {}
    for some in together.values():
        for (topic, stake), chosen in zip(some.items(), extras(tuple(some.values())), strict=True):
            sizes[topic] = stake.queues // len(stake.members) + (me in chosen)
    return {topic: sizes[topic] for topic in stakes}


def _read_bids(
    share: Share, mine: Mapping[str, Sequence[MessageQueue]], my_bids: set[MessageQueue], waited: int, patience: int
) -> Steps[tuple[dict[str, Stake], bool]]:
    """By topic, who shares it; nothing as long as it is worth waiting. And whether all members are present."""
    members = tuple(share.members)
    if len(members) == 1:
        return {topic: Stake(len(queues), members) for topic, queues in share.topics.items()}, True

    first = share.first_bids
    yield from _bid(share, [first], mine, my_bids)
    found = (yield from _look(share, [first], my_bids))[0]
    if all(set(found[topic]) == set(members) for topic in first.topics):
        return {
            topic: Stake(len(queues), members, _yes(found.get(topic, {}))) for topic, queues in share.topics.items()
        }, True
    if waited < patience:
        return {}, False

    second = list(share.second_bids.values())
    yield from _bid(share, second, mine, my_bids)
    if waited < patience + patience // 2:
        return {}, False
    stakes = {}
    for bids, by_topic in zip(second, (yield from _look(share, second, my_bids)), strict=True):
        (topic,) = bids.topics
        # I am there, whether or not my bid could be put
        present = {share.me: False, **by_topic[topic]}
        there = tuple(member for member in members if member in present)
        stakes[topic] = Stake(len(share.topics[topic]), there, _yes(present))
    return stakes, False


def _yes(bids: Mapping[str, bool]) -> frozenset[str]:
    return frozenset(member for member, more in bids.items() if more)


def _bid(
    share: Share, wanted: Iterable[_Bids], mine: Mapping[str, Sequence[MessageQueue]], my_bids: set[MessageQueue]
) -> Steps[None]:
    """Put my bids where there are none. One that is there stays as it is: others may have read it."""
    missing = []
    for bids in wanted:
        for topic in bids.topics:
            pair = bids.pair(topic, share.me)
            if my_bids.isdisjoint(pair):
                missing.append(pair[len(mine[topic]) > share.floor(topic)])
    while missing:
        my_bids |= (yield Take(tuple(missing))) & set(missing)
        if missing := [bid for bid in missing if bid not in my_bids]:
            # refused because somebody is just asking for it, or because the broker does not answer
            free = yield Ask(tuple(missing))
            missing = [bid for bid in missing if bid in free]


def _look(
    share: Share, wanted: Sequence[_Bids], my_bids: Collection[MessageQueue]
) -> Steps[list[dict[str, dict[str, bool]]]]:
    """For each of these: topic → member → its bid, where there is one."""
    others = [member for member in share.members if member != share.me]
    free = yield Ask(tuple(lock for bids in wanted for member in others for lock in bids.of(member)))
    found = []
    for bids in wanted:
        by_topic: dict[str, dict[str, bool]] = {topic: {} for topic in bids.topics}
        for topic, values in by_topic.items():
            for member in share.members:
                no, yes = bids.pair(topic, member)
                taken = [lock in my_bids if member == share.me else lock not in free for lock in (no, yes)]
                # both are taken where the broker did not answer
                if sum(taken) == 1:
                    values[member] = taken[1]
        found.append(by_topic)
    return found


def _fill(share: Share, mine: Mapping[str, list[MessageQueue]], sizes: Mapping[str, int]) -> Steps[None]:
    """Take free queues until so many of each topic are mine, or as many as are free.

    Never more than are wanted, not even for a moment: another member that was refused would think them taken.
    The first try goes without asking; at a place of one's own it often succeeds. Only the answer that nothing is
    free ends the search, for a lock can also be refused because somebody is just asking for it.
    """
    left: dict[str, list[MessageQueue]] = {}
    for topic, size in sizes.items():
        if len(mine[topic]) < size:
            have = set(mine[topic])
            left[topic] = [queue for queue in share.topics[topic] if queue not in have]
    free = left
    while free:
        tried = {topic: share.from_my_place(free[topic])[: sizes[topic] - len(mine[topic])] for topic in free}
        granted = yield Take(tuple(queue for queues in tried.values() for queue in queues))
        for topic, queues in tried.items():
            mine[topic] += [queue for queue in queues if queue in granted]
        left = {
            topic: [queue for queue in queues if queue not in granted]
            for topic, queues in left.items()
            if len(mine[topic]) < sizes[topic]
        }
        if not left:
            return
        found = yield Ask(tuple(queue for queues in left.values() for queue in queues))
        free = {
            topic: some for topic, queues in left.items() if (some := [queue for queue in queues if queue in found])
        }
