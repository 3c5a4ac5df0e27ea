"""How far each group is in each queue: the offset that it wants next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["GroupOffsets"]


class GroupOffsets:
    """Offsets by topic, group and queue.

    A later commit overwrites an earlier one, also with a lower offset: members that seek back rely on it.

    >>> offsets = GroupOffsets()
    >>> offsets.commit("billing", "orders", 0, 7)
    >>> offsets.get("billing", "orders", 0), offsets.get("billing", "orders", 1)
    (7, None)
    """

    def __init__(self, table: Mapping[tuple[str, str], Mapping[int, int]] | None = None) -> None:
        self._table = {key: dict(queues) for key, queues in (table or {}).items()}
        self._version = 0

    @property
    def version(self) -> int:
        """Rises with every change: whoever saves the table knows by it whether there is something to save."""
        return self._version

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._table.setdefault((topic, group), {})[queue_id] = offset
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
        self._forget(key for key in list(self._table) if key[0] == topic)

    def forget_group(self, group: str) -> None:
        self._forget(key for key in list(self._table) if key[1] == group)

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            del self._table[key]
            self._version += 1

    def table(self) -> dict[tuple[str, str], dict[int, int]]:
        """Everything, by topic and group."""
        return {key: dict(queues) for key, queues in self._table.items()}
