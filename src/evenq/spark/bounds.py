"""Where reading begins and ends: by name, by offset, by time. Pure: what brokers must be asked is handed in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.offsets import by_topic

__all__ = ["NUMBERS", "AtTime", "Bound", "Ends", "Place", "between", "places", "resolve"]

Offsets = Mapping[MessageQueue, int]


class Place(Enum):
    """A place that every queue has: its ends, and how far the query's consumer group is."""

    EARLIEST = auto()
    LATEST = auto()
    GROUP = auto()


# The numbers that stand for places where an offset must be.
NUMBERS = {-2: Place.EARLIEST, -1: Place.LATEST}


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message that was stored at a time or later: one time for all queues, or one for each.

    ``otherwise`` is where a queue without such a message begins; None makes that an error.
    """

    milliseconds: int | Mapping[MessageQueue, int]
    otherwise: Place | None = Place.LATEST

    def times(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """The time for each queue that has one."""
        if isinstance(self.milliseconds, int):
            return dict.fromkeys(queues, self.milliseconds)
        return {queue: time for queue, time in self.milliseconds.items() if queue in queues}


@dataclass(frozen=True, slots=True)
class Bound:
    """A beginning or an end, and the option that it came from."""

    option: str
    at: Place | AtTime | Mapping[MessageQueue, int]

    @property
    def shown(self) -> object:
        """It as the user knows it, for errors."""
        match self.at:
            case Place():
                return self.at.name.lower()
            case AtTime(times):
                return times if isinstance(times, int) else by_topic(times)
            case offsets:
                return by_topic(offsets)

    @property
    def queues(self) -> Collection[MessageQueue] | None:
        """The queues that it names; None where it means all."""
        match self.at:
            case AtTime(Mapping() as named) | (Mapping() as named):
                return named.keys()
            case _:
                return None


def places(bound: Bound) -> set[Place]:
    """The places that a bound uses for some queue."""
    match bound.at:
        case Place():
            return {bound.at}
        case AtTime():
            return set()
        case offsets:
            return {NUMBERS[offset] for offset in offsets.values() if offset in NUMBERS}


@dataclass(frozen=True, slots=True)
class Ends:
    """What queues hold: offsets from ``earliest`` up to, not including, ``latest``. Both have the same queues."""

    earliest: Offsets
    latest: Offsets


def resolve(bound: Bound, ends: Ends, asked: Offsets, *, strict: bool) -> dict[MessageQueue, int]:
    """The offset of each queue that a bound stands for.

    ``asked`` is what brokers said about a group or a time; a queue that is missing there has nothing stored. Offsets
    that a queue cannot have are an error if ``strict``. Those that it has no longer are not: reading finds out.
    """
    if bound.queues is not None:
        _same_queues(bound, bound.queues, ends.latest.keys())
    match bound.at:
        case Place.EARLIEST:
            return dict(ends.earliest)
        case Place.LATEST:
            return dict(ends.latest)
        case Place.GROUP:
            # what nobody has consumed yet begins at its beginning
            return {queue: asked.get(queue, first) for queue, first in ends.earliest.items()}
        case AtTime():
            return _at_time(bound, bound.at, ends, asked)
        case offsets:
            return _at_offsets(bound, offsets, ends, strict=strict)


def _at_time(bound: Bound, at: AtTime, ends: Ends, asked: Offsets) -> dict[MessageQueue, int]:
    if at.otherwise is None:
        late = {queue: time for queue, time in at.times(ends.latest).items() if asked[queue] >= ends.latest[queue]}
        if late:
            raise ArgumentError(
                bound.option,
                by_topic(late),
                "these queues have no message of that time or later: give an earlier time, "
                "or startingOffsetsByTimestampStrategy=latest to begin with what comes",
            )
    return {queue: max(asked[queue], ends.earliest[queue]) for queue in ends.latest}


def _at_offsets(bound: Bound, offsets: Offsets, ends: Ends, *, strict: bool) -> dict[MessageQueue, int]:
    found: dict[MessageQueue, int] = {}
    for queue, offset in sorted(offsets.items()):
        end = ends.latest[queue]
        if strict and offset > end:
            raise ArgumentError(
                bound.option,
                by_topic({queue: offset}),
                f"the queue ends at {end}; give an offset up to that, or -1 (latest) or -2 (earliest)",
            )
        edges = {-2: ends.earliest[queue], -1: end}
        found[queue] = edges.get(offset, min(offset, end))
    return found


def _same_queues(bound: Bound, given: Collection[MessageQueue], there: Collection[MessageQueue]) -> None:
    missing, unknown = set(there) - set(given), set(given) - set(there)
    if missing or unknown:
        raise ArgumentError(
            bound.option,
            by_topic(dict.fromkeys(given, ...)),
            f"name every queue of the topics once; missing: {_names(missing)}; not there: {_names(unknown)}",
        )


def _names(queues: Collection[MessageQueue]) -> str:
    return ", ".join(f"{queue.topic}.{queue.broker}.{queue.queue_id}" for queue in sorted(queues)) or "none"


def between(start: Bound, starts: Offsets, stops: Offsets) -> list[QueueRange]:
    """The ranges of a batch query. A start behind its end is an error, or would be silently empty.

    Times are not: between two of them there may be nothing.
    """
    crossed = {queue: (begin, stops[queue]) for queue, begin in starts.items() if begin > stops[queue]}
    if crossed and not isinstance(start.at, AtTime):
        raise ArgumentError(start.option, by_topic(crossed), "these begin (first) behind their end (second)")
    return [QueueRange(queue, begin, max(begin, stops[queue])) for queue, begin in sorted(starts.items())]
