"""What came of it: everything that was sent, held against what was stored and what was consumed. Pure.

A message is known by its key from the sender to the store, and from there on by its place: the queue and the offset. So
one that a producer stored twice, because an answer got lost, is not taken for one that was consumed twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = ["Committed", "Consumed", "Place", "Stored", "Twice", "Verdict", "judge"]


class Place(NamedTuple):
    """Where a message is."""

    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue_id} at {self.offset}"


Committed: TypeAlias = Mapping[tuple[str, int], int]
"""Broker and queue → the offset up to which everything is known to be done."""


class Stored(NamedTuple):
    """A message in the topic."""

    key: str
    place: Place


class Consumed(NamedTuple):
    """A message that somebody is done with."""

    who: str
    key: str
    place: Place


@dataclass(frozen=True, slots=True)
class Twice:
    """A message that somebody was done with, and somebody again. ``why`` is empty where nobody knows."""

    key: str
    place: Place
    who: tuple[str, ...]
    why: str = ""

    def __str__(self) -> str:
        return f"{self.key} ({self.place}) by {' and '.join(self.who)}: {self.why or 'nobody knows why'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts, and the names of all that is not as it should be.

    ``missing`` was confirmed to the producer and is not in the topic; ``lost`` is in the topic and nobody consumed it;
    ``again`` are keys that the topic has more than once; ``unknown`` was consumed and is not in the topic.
    """

    sent: int
    stored: int
    consumed: Mapping[str, int]
    missing: tuple[str, ...]
    lost: tuple[Stored, ...]
    again: tuple[str, ...]
    twice: tuple[Twice, ...]
    unknown: tuple[Consumed, ...]
    failed: Mapping[str, str]

    @property
    def unexplained(self) -> tuple[Twice, ...]:
        return tuple(twice for twice in self.twice if not twice.why)

    @property
    def clean(self) -> bool:
        """Nothing is lost, and whatever came twice has its reason."""
        return not (self.missing or self.lost or self.unknown or self.unexplained)

    def lines(self, most: int = 12) -> list[str]:
        """The verdict in words, the names of what is not as it should be included, up to ``most`` of each kind."""
        said = [f"lost {len(self.missing) + len(self.lost)}, twice {len(self.twice)}"]
        said += _listed(most, [f"{key} was confirmed, and is not in the topic" for key in self.missing])
        said += _listed(most, [f"{lost.key} ({lost.place}) was consumed by nobody" for lost in self.lost])
        said += _listed(
            most, [f"{one.who} consumed {one.key} ({one.place}), which was not sent" for one in self.unknown]
        )
        said += _listed(most, [f"{twice}" for twice in self.twice])
        said += _listed(
            most, [f"{key} could not be sent, and the producer knows: {why}" for key, why in self.failed.items()]
        )
        why = "an answer was lost with a connection, so the producer sent it again"
        said += _listed(most, [f"{key} is in the topic more than once: {why}" for key in self.again])
        return said


def _listed(most: int, lines: Sequence[str]) -> list[str]:
    more = len(lines) - most
    return [f"  {line}" for line in lines[:most]] + ([f"  and {more:,} more like it"] if more > 0 else [])


def judge(
    sent: Iterable[str],
    stored: Iterable[Stored],
    consumed: Iterable[Consumed],
    killed: Mapping[str, Committed] | None = None,
    failed: Mapping[str, str] | None = None,
) -> Verdict:
    """``sent`` are keys that a broker confirmed. ``killed`` members could not tell what they were done with beyond what
    the group had committed in the queues that they held, which is what stands beside their names. ``failed``: keys that
    the producer was told were not stored, and why; that is not lost, but worth a word.

    >>> here = Place("broker-a", 0, 7)
    >>> both = [Consumed("c1", "o-1", here), Consumed("c2", "o-1", here)]
    >>> verdict = judge(["o-1"], [Stored("o-1", here)], both, killed={"c1": {("broker-a", 0): 5}})
    >>> verdict.clean, str(verdict.twice[0])
    (True, 'o-1 (broker-a:0 at 7) by c1 and c2: c1 was killed before it could tell that it was done')
    """
    confirmed, there, done = set(sent), list(stored), list(consumed)
    places = {message.place for message in there}
    keys = Counter(message.key for message in there)
    by_place: defaultdict[Place, list[Consumed]] = defaultdict(list)
    for one in done:
        by_place[one.place].append(one)
    return Verdict(
        sent=len(confirmed),
        stored=len(there),
        consumed=dict(sorted(Counter(one.who for one in done).items())),
        missing=tuple(sorted(confirmed - keys.keys())),
        lost=tuple(message for message in sorted(there) if message.place not in by_place),
        again=tuple(sorted(key for key, times in keys.items() if times > 1)),
        twice=tuple(_twice(by_place[place], killed or {}) for place in sorted(by_place) if len(by_place[place]) > 1),
        unknown=tuple(one for one in done if one.place not in places),
        failed=dict(failed or {}),
    )


def _twice(all_of_it: Sequence[Consumed], killed: Mapping[str, Committed]) -> Twice:
    first = all_of_it[0]
    who = tuple(sorted(one.who for one in all_of_it))
    # a killed member and one of those who came after it; more than that is not its doing
    victims = [name for name in who if _in_hand(first.place, killed.get(name, {}))]
    explained = len(victims) == 1 and len(who) == 2
    why = f"{victims[0]} was killed before it could tell that it was done" if explained else ""
    return Twice(first.key, first.place, who, why)


def _in_hand(place: Place, committed: Committed) -> bool:
    """Whether nobody but its holder could know that the message was done."""
    return place[:2] in committed and place.offset >= committed[place[:2]]
