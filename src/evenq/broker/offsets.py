"""How far each group is in each queue: the offset that it wants next."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["GroupOffsets"]


class GroupOffsets:
    """Offsets by topic, group and queue.

    A later commit overwrites an earlier one, also with a lower offset: members that seek back rely on it. After a
    reset commits count for nothing until the member that reads the queue has been told where to go on.

    >>> offsets = GroupOffsets()
    >>> offsets.commit("billing", "orders", 0, 7)
    >>> offsets.get("billing", "orders", 0), offsets.get("billing", "orders", 1)
    (7, None)
    """

    def __init__(self, table: Mapping[tuple[str, str], Mapping[int, int]] | None = None) -> None:
        self._table = {key: dict(queues) for key, queues in (table or {}).items()}
        self._version = 0
        # where members are to go on that have not been told yet, and what they read last
        self._resets: dict[tuple[str, str, int], int] = {}
        self._pulled: dict[tuple[str, str, int], int] = {}

    @property
    def version(self) -> int:
        """Rises with every change: whoever saves the table knows by it whether there is something to save."""
        return self._version

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self._resets and (topic, group, queue_id) in self._resets:
            return
        self._table.setdefault((topic, group), {})[queue_id] = offset
        self._version += 1

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Let the group go on at ``offset``, whatever its members commit until one of them asks."""
        self._resets.pop((topic, group, queue_id), None)
        self.commit(group, topic, queue_id, offset)
        self._resets[topic, group, queue_id] = offset

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a member that reads the queue is to go on, told once; None where it may go on as it was."""
        return self._resets.pop((topic, group, queue_id), None) if self._resets else None

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A member has read up to ``offset``; what of it is not committed yet is in its hands."""
        self._pulled[topic, group, queue_id] = offset

    def in_hand(self, group: str, topic: str, queue_id: int) -> int:
        """Up to where members have read, which is no less than what is committed."""
        return max(self._pulled.get((topic, group, queue_id), 0), self.get(group, topic, queue_id) or 0)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let one group be where another is in a topic."""
        queues = self._table.get((topic, source))
        if queues is not None:
            self._table[topic, target] = dict(queues)
            self._version += 1

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        queues = self._table.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._table.get((topic, group), {}))

    def topics(self, group: str) -> list[str]:
        return [topic for topic, owner in self._table if owner == group]

    def groups(self, topic: str) -> list[str]:
        return [group for name, group in self._table if name == topic]

    def forget_topic(self, topic: str) -> None:
        self._forget(0, topic)

    def forget_group(self, group: str) -> None:
        self._forget(1, group)

    def _forget(self, place: int, name: str) -> None:
        """Forget what has this name at this place of its key."""
        for key in [key for key in self._table if key[place] == name]:
            del self._table[key]
            self._version += 1
        for table in (self._resets, self._pulled):
            for queue in [queue for queue in table if queue[place] == name]:
                del table[queue]

    def table(self) -> dict[tuple[str, str], dict[int, int]]:
        """Everything, by topic and group."""
        return {key: dict(queues) for key, queues in self._table.items()}
