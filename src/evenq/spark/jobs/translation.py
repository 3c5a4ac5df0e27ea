"""Where a group is in a mirror, from where it is in the topic that is mirrored.

A copy tells which message it is a copy of, so of every message in the mirror it is known whether the group has consumed
it. In each queue of the mirror the group belongs before the first one that it has not. What nobody can tell counts as
not consumed: messages that came to the mirror otherwise, and queues of which the group has stored nothing. So no
message is skipped; some may come again, where several queues were mirrored into one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from evenq.model import MessageQueue
from evenq.spark.bounds import Ends
from evenq.spark.jobs.mirroring import SOURCE, quoted, source_text
from evenq.spark.offsets import by_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["GroupPosition", "Memory", "Offsets", "not_consumed", "positions"]

Offsets: TypeAlias = Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group was put in the mirror: ``moved`` queues go on elsewhere than before, ``ahead`` messages are there
    for it to consume, and ``waiting`` ones, which failed and are due for another try, stay on the source's cluster."""

    group: str
    moved: int
    ahead: int
    waiting: int


class Memory:
    """Up to where the mirror was looked at for each group: what is consumed stays so, as long as the group goes on."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Offsets, Offsets]] = {}

    def note(self, group: str, stored: Offsets, found: Offsets) -> None:
        """With these offsets stored, the group belongs there in the mirror."""
        self._known[group] = dict(stored), dict(found)

    def since(self, group: str, stored: Offsets) -> Offsets:
        """Where to begin to look: nothing known where the group has gone back."""
        before, found = self._known.get(group, ({}, {}))
        gone_back = any(stored.get(queue, -1) < offset for queue, offset in before.items())
        return {} if gone_back else found


def not_consumed(stored: Offsets, name: str = "") -> str:
    """The SQL condition of a copy that a group has not consumed, by the column ``origin``.

    >>> print(not_consumed({MessageQueue("t", "b", 0): 5}))
    coalesce(cast(substring_index(origin, ':', -1) as bigint) >= try_element_at(map('t:b:0', 5L), \
substring_index(origin, ':', 3)), true)
    """
    if not stored:
        return "true"
    known = ", ".join(f"{quoted(source_text(queue, name))}, {offset}L" for queue, offset in sorted(stored.items()))
    offset, queue = "cast(substring_index(origin, ':', -1) as bigint)", "substring_index(origin, ':', 3)"
    return f"coalesce({offset} >= try_element_at(map({known}), {queue}), true)"


def positions(
    read: Callable[[dict[str, str]], DataFrame],
    groups: Mapping[str, Offsets],
    ends: Ends,
    memory: Memory,
    name: str = "",
) -> dict[str, dict[MessageQueue, int]]:
    """Where each group belongs in the queues of the mirror, found in one look at what the mirror holds.

    ``groups`` has what each has stored in the source's queues, ``ends`` are those of the mirror's queues, and ``read``
    gives a frame of the mirror with these options.
    """
    found = {group: dict(ends.latest) for group in groups}
    known = [memory.since(group, stored) for group, stored in groups.items()]
    starts = {
        queue: max(begin, min(offsets.get(queue, 0) for offsets in known)) for queue, begin in ends.earliest.items()
    }
    unseen = {queue: start for queue, start in starts.items() if start < ends.latest[queue]}
    if unseen:
        for row in _first_not_consumed(read(_range(unseen, ends)), groups, name).collect():
            queue = MessageQueue(row["topic"], row["broker"], row["queue_id"])
            for at, group in enumerate(groups):
                if row[f"group{at}"] is not None:
                    found[group][queue] = row[f"group{at}"]
    for group, stored in groups.items():
        memory.note(group, stored, found[group])
    return found


def _first_not_consumed(mirror: DataFrame, groups: Mapping[str, Offsets], name: str) -> DataFrame:
    from pyspark.sql.functions import expr

    copies = mirror.selectExpr("topic", "broker", "queue_id", "offset", f"{SOURCE} as origin")
    firsts = (
        expr(f"min(if({not_consumed(stored, name)}, offset, null)) as group{at}")
        for at, stored in enumerate(groups.values())
    )
    return copies.groupBy("topic", "broker", "queue_id").agg(*firsts)


def _range(starts: Offsets, ends: Ends) -> dict[str, str]:
    """The options of the source that mean these queues from there up to their ends."""
    queues = {
        topic: {broker: [int(number) for number in numbers] for broker, numbers in brokers.items()}
        for topic, brokers in by_topic(starts).items()
    }
    stops = {queue: ends.latest[queue] for queue in starts}
    return {
        "assign": json.dumps(queues),
        "startingOffsets": json.dumps(by_topic(starts)),
        "endingOffsets": json.dumps(by_topic(stops)),
        "propertyColumns": SOURCE,
    }
