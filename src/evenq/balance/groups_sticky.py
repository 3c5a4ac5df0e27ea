"""The claim rule of ``STICKY`` for many groups at once: :func:`evenq.balance.sticky.turn`, in arrays.

Members take whole turns, one after the other, in an order of each group's own. Locks are taken in the same order as
in the original, so the two agree queue by queue.
"""

from __future__ import annotations

import numpy as np

from evenq.balance.groups_draw import Array, count
from evenq.errors import StateError

__all__ = ["StickyGroups"]

FREE = -1


class StickyGroups:
    """Groups of members, known by row, that share ``queues`` queues each."""

    # the rule needs at most 3; more means that it is broken
    LIMIT = 10

    def __init__(self, queues: int, rows: int, groups: int) -> None:
        self._groups = np.arange(groups)
        self.holder = np.full((queues, groups), FREE, np.int8 if rows < 128 else np.int16)
        # when each queue was taken: the newest are given back first
        self._taken = np.zeros((queues, groups), np.int32)
        self._clock = 0
        self._token = np.zeros((rows, groups), bool)
        self._marked = np.zeros((rows, groups), bool)
        self._members = np.empty((0, groups), self.holder.dtype)

    def settle(self, members: Array, order: Array) -> int:
        """Change to these members, who act in this order; gives the rounds until all groups were settled."""
        rows = np.arange(len(self._token), dtype=members.dtype)
        there = (rows[:, None, None] == members[None]).any(axis=1)
        # tokens and marks carry the number of members in their names
        stay = there & (len(members) == len(self._members))
        self._token &= stay
        self._marked &= stay
        self._members = members
        self.holder[(self.holder != FREE) & ~np.take_along_axis(there, np.maximum(self.holder, 0), axis=0)] = FREE
        for number in range(1, self.LIMIT + 1):
            for places in order:
                self._turn(places)
            if self._settled():
                return number
        raise StateError(f"{len(members)} members and {len(self.holder)} queues: not settled in {self.LIMIT} rounds")

    @property
    def _floor(self) -> int:
        return len(self.holder) // len(self._members)

    @property
    def _extra(self) -> int:
        return len(self.holder) % len(self._members)

    def _settled(self) -> bool:
        loads = np.array([count(self.holder == member) for member in self._members])
        return bool(((self._floor <= loads) & (loads <= self._floor + 1)).all() and (self.holder != FREE).all())

    def _turn(self, places: Array) -> None:
        """One member of each group, by its place in the sorted list, takes its turn."""
        me = np.take_along_axis(self._members, places[None], axis=0)[0]
        loads = count(self.holder == me)
        token = self._token[me, self._groups]
        if self._extra:
            token |= (loads > self._floor) & self._tokens_left()
            self._token[me, self._groups] = token
            self._marked[me, self._groups] = True
        allowance = self._floor + token
        self._give_back(me, loads - allowance)
        self._fill(me, places, allowance - loads)
        if self._extra:
            full = count(self.holder == me) == self._floor
            more = full & ~token & self._tokens_left() & self._all_marked()
            self._token[me, self._groups] |= more
            self._fill(me, places, more.astype(np.int32))

    def _tokens_left(self) -> Array:
        return count(self._token) < self._extra

    def _all_marked(self) -> Array:
        marked: Array = count(np.take_along_axis(self._marked, self._members, axis=0)) == len(self._members)
        return marked

    def _give_back(self, me: Array, over: Array) -> None:
        """The queues that were taken last."""
        groups = np.flatnonzero(over > 0)
        over = over[groups]
        while groups.size:
            mine = self.holder[:, groups] == me[groups]
            newest = np.where(mine, self._taken[:, groups], -1).argmax(axis=0)
            self.holder[newest, groups] = FREE
            over = over - 1
            groups, over = groups[over > 0], over[over > 0]

    def _fill(self, me: Array, places: Array, need: Array) -> None:
        """Try the queues at one's own place, then what is free."""
        groups = np.flatnonzero(need > 0)
        if not groups.size:
            return
        me, places, need = me[groups], places[groups], need[groups]
        need = need - self._take(groups, me, places, need, self.holder[:, groups] != me)
        self._take(groups, me, places, need, self.holder[:, groups] == FREE)

    def _take(self, groups: Array, me: Array, places: Array, need: Array, wanted: Array) -> Array:
        """Try for the first ``need`` of the wanted, from one's own place on; gives how many were granted."""
        place = np.cumsum(wanted, axis=0, dtype=np.int32)
        total = place[-1].copy()
        start = places * total // len(self._members)
        place -= 1 + start.astype(np.int32)
        place += np.where(place < 0, total, 0)
        holder = self.holder[:, groups]
        granted = wanted & (place < need) & (holder == FREE)
        self.holder[:, groups] = np.where(granted, me, holder)
        self._taken[:, groups] = np.where(granted, self._clock + place, self._taken[:, groups])
        self._clock += len(self.holder)
        return count(granted)
