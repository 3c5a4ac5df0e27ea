"""What goes through a broker: messages in by topic, messages out by topic and group, under the Java broker's names."""

from __future__ import annotations

from collections import defaultdict

from evenq.broker.rates import Key
from evenq.broker.store.store import Store

__all__ = ["BROKER_GET", "BROKER_PUT", "GROUP_GET", "TOPIC_PUT", "Traffic"]

TOPIC_PUT = "TOPIC_PUT_NUMS"
GROUP_GET = "GROUP_GET_NUMS"
BROKER_PUT = "BROKER_PUT_NUMS"
BROKER_GET = "BROKER_GET_NUMS"


class Traffic:
    """Counters since the store was begun (in) and since this process was started (out).

    What came in needs no counting: where the queues end tells it.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._out: defaultdict[tuple[str, str], int] = defaultdict(int)

    def sent(self, topic: str, group: str, count: int) -> None:
        """Messages of a topic went out to a member of a group."""
        self._out[topic, group] += count

    def get(self, key: Key) -> int | None:
        name, of = key
        if name == GROUP_GET:
            topic, _, group = of.rpartition("@")
            return self._out.get((topic, group))
        if name == TOPIC_PUT:
            ends = [queue.max for queue in self._store.queues() if queue.topic == of]
            return sum(ends) if ends else None
        return self._totals().get(key)

    def all(self) -> dict[Key, int]:
        topics: defaultdict[Key, int] = defaultdict(int)
        for queue in self._store.queues():
            topics[TOPIC_PUT, queue.topic] += queue.max
        groups = {(GROUP_GET, f"{topic}@{group}"): count for (topic, group), count in self._out.items()}
        return {**topics, **groups, **self._totals()}

    def _totals(self) -> dict[Key, int]:
        return {
            (BROKER_PUT, self._cluster): sum(queue.max for queue in self._store.queues()),
            (BROKER_GET, self._cluster): sum(self._out.values()),
        }
