"""What the brokers know of the group: who holds which queue, how far it is behind, and what has moved since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenq.model import MessageQueue
from evenq.testing import EmbeddedCluster

__all__ = ["Look", "Watcher", "name_of"]

# A query has no instance name: it is the member that is not one of ours.
QUERY = "Spark"
ASKING = "ASKING"


@dataclass(frozen=True, slots=True)
class Look:
    """One look. ``holders``: queue → who may read it now; ``committed``: queue → the offset that the group wants next;
    ``lag``: queue → messages that are not consumed."""

    holders: Mapping[MessageQueue, str]
    committed: Mapping[MessageQueue, int]
    lag: Mapping[MessageQueue, int]
    members: tuple[str, ...]
    stored: int

    @property
    def behind(self) -> int:
        return sum(self.lag.values())

    def lag_of(self, name: str) -> int:
        return sum(self.lag.get(queue, 0) for queue in self.held_by(name))

    def held_by(self, name: str) -> list[MessageQueue]:
        return sorted(queue for queue, holder in self.holders.items() if holder == name)


def name_of(client_id: str, names: set[str]) -> str:
    """
    >>> name_of("10.0.0.7@c2", {"c1", "c2"}), name_of("10.0.0.7@4711#18b#1", {"c1", "c2"})
    ('c2', 'Spark')
    """
    instance = client_id.rpartition("@")[2]
    return instance if instance in names else QUERY


@dataclass
class Watcher:
    """Looks at the embedded brokers' own tables, which is cheap, and counts the moves between looks.

    A queue that nobody holds for a moment, while it changes hands, has moved when it is held again by another.
    """

    cluster: EmbeddedCluster
    group: str
    topic: str
    last: Look = field(default_factory=lambda: Look({}, {}, {}, (), 0))
    moves: int = 0
    _held: dict[MessageQueue, str] = field(default_factory=dict)

    def look(self, names: set[str]) -> list[tuple[MessageQueue, str, str]]:
        """Look again; gives what has moved: the queue, from whom, to whom."""
        self.last = self.cluster.call(lambda: self._look(names))
        moved = [
            (queue, self._held[queue], holder)
            for queue, holder in sorted(self.last.holders.items())
            if self._held.get(queue, holder) != holder
        ]
        self._held.update(self.last.holders)
        self.moves += len(moved)
        return moved

    def _look(self, names: set[str]) -> Look:
        holders: dict[MessageQueue, str] = {}
        committed: dict[MessageQueue, int] = {}
        lag: dict[MessageQueue, int] = {}
        members: set[str] = set()
        stored = 0
        for broker in self.cluster.brokers.values():
            config = broker.topics.get(self.topic)
            for number in range(config.read_queue_nums if config else 0):
                queue = MessageQueue(self.topic, broker.settings.name, number)
                first, end = broker.store.bounds(self.topic, number)
                stored += end - first
                committed[queue] = broker.offsets.get(self.group, self.topic, number) or 0
                lag[queue] = end - committed[queue]
            for queue, owner in broker.locks.holders(f"HANDOVER-{self.group}").items():
                if queue in lag and owner != ASKING:
                    holders[queue] = name_of(owner, names)
            group = broker.groups.get(self.group)
            members |= {name_of(client, names) for client in (group.client_ids if group else ())}
        return Look(holders, committed, lag, tuple(sorted(members)), stored)
