"""The claim rule of ``STICKY`` for many groups at once: :func:`evenq.balance.sticky.turn`, in arrays.

Members take whole turns, one after the other, in an order of each group's own. Locks are taken in the same order as
in the original, so the two agree queue by queue.
"""

from __future__ import annotations

import numpy as np

from evenq.balance.groups_draw import Array, count
from evenq.balance.sticky import Stake, extras
from evenq.errors import StateError

__all__ = ["StickyGroups", "who_holds_more"]

FREE = -1


class StickyGroups:
    """Groups of members, known by row, that share ``topics`` topics of ``queues`` queues each."""

    # the rule needs at most 3; more means that it is broken
    LIMIT = 10

    def __init__(self, queues: int, topics: int, rows: int, groups: int) -> None:
        self._groups = np.arange(groups)
        self._rows = rows
        self.holder = np.full((topics * queues, groups), FREE, np.int8 if rows < 128 else np.int16)
        # topic by topic, views of the same array
        self._topics = [self.holder[start : start + queues] for start in range(0, topics * queues, queues)]
        # when each queue was taken: the newest are given back first
        self._taken = [np.zeros((queues, groups), np.int32) for _ in range(topics)]
        self._clock = 0

    def settle(self, members: Array, order: Array) -> int:
        """Change to these members, who act in this order; gives the rounds until all groups were settled."""
        rows = np.arange(self._rows, dtype=members.dtype)
        there = (rows[:, None, None] == members[None]).any(axis=1)
        self.holder[(self.holder != FREE) & ~np.take_along_axis(there, np.maximum(self.holder, 0), axis=0)] = FREE
        floor = len(self._topics[0]) // len(members)
        # [topic, place, group]
        bids = np.zeros((len(self._topics), *members.shape), bool)
        sizes: Array | None = None
        for number in range(1, self.LIMIT + 1):
            for turn, places in enumerate(order):
                me = np.take_along_axis(members, places[None], axis=0)[0]
                for topic, holder in enumerate(self._topics):
                    self._fill(topic, me, places, len(members), floor - count(holder == me))
                    if number == 1:
                        bids[topic, places, self._groups] = count(holder == me) > floor
                if sizes is None and turn == len(members) - 1:
                    # the last bid is put: from now on all members see them all
                    sizes = floor + who_holds_more(bids, len(self._topics[0]))
                if sizes is not None:
                    for topic, holder in enumerate(self._topics):
                        size = sizes[topic, places, self._groups]
                        self._give_back(topic, me, count(holder == me) - size)
                        self._fill(topic, me, places, len(members), size - count(holder == me))
            assert sizes is not None, "the last member saw all bids"
            if all((self._loads(topic, members) == sizes[topic]).all() for topic in range(len(self._topics))):
                return number
        raise StateError(f"{len(members)} members and {len(self.holder)} queues: not settled in {self.LIMIT} rounds")

    def _loads(self, topic: int, members: Array) -> Array:
        """[place, group]"""
        return np.array([count(self._topics[topic] == member) for member in members])

    def _give_back(self, topic: int, me: Array, over: Array) -> None:
        """The queues that were taken last."""
        holder, taken = self._topics[topic], self._taken[topic]
        groups = np.flatnonzero(over > 0)
        over = over[groups]
        while groups.size:
            mine = holder[:, groups] == me[groups]
            newest = np.where(mine, taken[:, groups], -1).argmax(axis=0)
            holder[newest, groups] = FREE
            over = over - 1
            groups, over = groups[over > 0], over[over > 0]

    def _fill(self, topic: int, me: Array, places: Array, members: int, need: Array) -> None:
        """Try the queues at one's own place, then what is free."""
        groups = np.flatnonzero(need > 0)
        if not groups.size:
            return
        me, places, need = me[groups], places[groups], need[groups]
        holder = self._topics[topic]
        need = need - self._take(topic, groups, me, places, members, need, holder[:, groups] != me)
        self._take(topic, groups, me, places, members, need, holder[:, groups] == FREE)

    def _take(
        self, topic: int, groups: Array, me: Array, places: Array, members: int, need: Array, wanted: Array
    ) -> Array:
        """Try for the first ``need`` of the wanted, from one's own place on; gives how many were granted."""
        place = np.cumsum(wanted, axis=0, dtype=np.int32)
        total = place[-1].copy()
        start = places * total // members
        place -= 1 + start.astype(np.int32)
        place += np.where(place < 0, total, 0)
        holder, taken = self._topics[topic], self._taken[topic]
        held = holder[:, groups]
        granted = wanted & (place < need) & (held == FREE)
        holder[:, groups] = np.where(granted, me, held)
        taken[:, groups] = np.where(granted, self._clock + place, taken[:, groups])
        self._clock += len(holder)
        return count(granted)


def who_holds_more(bids: Array, queues: int) -> Array:
    """[topic, place, group] → whether the member holds one more: :func:`evenq.balance.sticky.extras` of each group."""
    topics, members, groups = bids.shape
    extra = queues % members
    if topics == 1:
        # the first that bid YES, then the first that bid NO
        rank = np.argsort(np.argsort(~bids[0], axis=0, kind="stable"), axis=0)
        first: Array = (rank < extra)[None]
        return first
    # groups with the same bids have the same answer
    patterns, which = np.unique(bids.reshape(topics * members, groups), axis=1, return_inverse=True)
    places = tuple(map(str, range(members)))
    found = np.zeros((topics, members, patterns.shape[1]), bool)
    for number, pattern in enumerate(patterns.T.reshape(-1, topics, members)):
        stakes = tuple(Stake(queues, places, frozenset(places[one] for one in np.flatnonzero(row))) for row in pattern)
        for topic, chosen in enumerate(extras(stakes)):
            found[topic, [int(place) for place in chosen], number] = True
    every: Array = found[:, :, which.reshape(-1)]
    return every
