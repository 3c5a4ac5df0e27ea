"""How even a division of queues is, and what it costs to get from one to the next.

An *assignment* maps each member to the queues that it holds, members without queues included. Here is what the
measures say of three queues shared by two members, before and after a third one joins:

>>> a, b, c = (MessageQueue("orders", "broker-a", number) for number in range(3))
>>> before, after = {"x": [a, b], "y": [c]}, {"x": [a], "y": [b], "z": [c]}
>>> spread(before), spread(after), len(moved(before, after)), least_moves(before, ["x", "y", "z"], [a, b, c])
(1, 0, 2, 1)

``b`` and ``c`` moved; had ``y`` kept ``c`` and ``z`` taken ``b``, one move would have been enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from evenq.balance.ordering import sorted_members
from evenq.balance.sticky import Stake, extras
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = [
    "Assignment",
    "gini",
    "holders",
    "least_moves",
    "load",
    "moved",
    "peak",
    "ratio",
    "spread",
    "unheld",
]

Assignment: TypeAlias = Mapping[str, Collection[MessageQueue]]


def load(assignment: Assignment) -> dict[str, int]:
    """Member → how many queues it holds."""
    return {member: len(queues) for member, queues in assignment.items()}


def spread(assignment: Assignment) -> int:
    """The queues between the fullest and the emptiest member. An even division has 0 or 1."""
    loads = _loads(assignment)
    return max(loads) - min(loads)


def peak(assignment: Assignment) -> float:
    """The fullest member's load as a multiple of the mean: 1 is even, m is all on one of m members."""
    loads = _loads(assignment)
    return max(loads) * len(loads) / sum(loads) if any(loads) else 1.0


def gini(assignment: Assignment) -> float:
    """Gini's coefficient of the loads: 0 where all are equal, 1 - 1/m where one of m members has everything.

    It is half the mean difference between two members, as a share of the mean load.
    """
    loads = sorted(_loads(assignment))
    total, count = sum(loads), len(loads)
    if not total:
        return 0.0
    weighted = sum(rank * value for rank, value in enumerate(loads, start=1))
    return (2 * weighted - (count + 1) * total) / (count * total)


def holders(assignment: Assignment) -> dict[MessageQueue, str]:
    """Queue → its holder. An error where two members hold the same queue."""
    found: dict[MessageQueue, str] = {}
    for member, queues in assignment.items():
        for queue in queues:
            if found.setdefault(queue, member) != member:
                raise ArgumentError(
                    "assignment", str(queue), f"both {found[queue]} and {member} hold it; a queue has one holder"
                )
    return found


def moved(before: Assignment, after: Assignment) -> frozenset[MessageQueue]:
    """The queues that changed hands: held before and after, by different members.

    A queue whose holder is gone and that another took counts; a new queue, which nobody had, does not, nor does
    one that nobody has any more (see :func:`unheld`).
    """
    now = holders(after)
    return frozenset(queue for queue, member in holders(before).items() if now.get(queue, member) != member)


def unheld(assignment: Assignment, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
    """The queues that nobody reads."""
    return frozenset(queues) - holders(assignment).keys()


def least_moves(before: Assignment, members: Collection[str], queues: Collection[MessageQueue]) -> int:
    """The fewest moves, as :func:`moved` counts them, by which ``members`` can share ``queues`` evenly.

    Even means that the queues of each topic differ by at most one among the members, and the totals by at most one.
    With ``floor, extra = divmod(q, m)`` everyone holds ``floor`` queues of a topic and ``extra`` members one more. So
    of what a member has it can keep ``floor``, and one more where it is one of the ``extra``
    (:func:`evenq.balance.sticky.extras` chooses them best). Everything else that somebody had must move.
    """
    if not members:
        raise ArgumentError("members", list(members), "give at least one member to share the queues")
    holder_of = holders(before)
    everybody = tuple(sorted_members(set(members)))
    sizes = Counter(queue.topic for queue in set(queues))
    had = [(queue.topic, holder_of[queue]) for queue in set(queues) if queue in holder_of]
    staying = Counter(each for each in had if each[1] in everybody)
    kept, stakes = 0, []
    for topic in sorted(sizes):
        floor = sizes[topic] // len(everybody)
        more = frozenset(member for member in everybody if staying[topic, member] > floor)
        kept += sum(min(staying[topic, member], floor) for member in everybody)
        stakes.append(Stake(sizes[topic], everybody, more))
    chosen = extras(tuple(stakes)) if stakes else ()
    kept += sum(len(stake.holding_more & members) for stake, members in zip(stakes, chosen, strict=True))
    return len(had) - kept


def ratio(moves: int, least: int) -> float | None:
    """Moves as a multiple of the least possible; None where there was nothing to move, and yet something was."""
    if least:
        return moves / least
    return None if moves else 1.0


def _loads(assignment: Assignment) -> list[int]:
    if not assignment:
        raise ArgumentError("assignment", dict(assignment), "it must have at least one member, with or without queues")
    return [len(queues) for queues in assignment.values()]
