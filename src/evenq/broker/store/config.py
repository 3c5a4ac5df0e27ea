"""The broker's settings and offsets on disk, in ``config/``, as the Java broker writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from evenq.broker.store.files import read_or_backup, replace_file
from evenq.errors import ProtocolError, StateError
from evenq.protocol.bodies import Body, DelayOffsetTable, GroupConfigTable, OffsetTable, TopicConfigTable

__all__ = ["ConfigFiles"]

B = TypeVar("B", bound=Body)


class ConfigFiles:
    """``topics.json``, ``subscriptionGroup.json``, ``consumerOffset.json``, ``delayOffset.json``: each is replaced
    whole, the last one before it stays as ``.bak``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load_topics(self) -> TopicConfigTable:
        return self._load("topics.json", TopicConfigTable) or TopicConfigTable()

    def save_topics(self, table: TopicConfigTable) -> None:
        self._save("topics.json", table)

    def load_groups(self) -> GroupConfigTable:
        return self._load("subscriptionGroup.json", GroupConfigTable) or GroupConfigTable()

    def save_groups(self, table: GroupConfigTable) -> None:
        self._save("subscriptionGroup.json", table)

    def load_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """Offsets by topic and group."""
        saved = self._load("consumerOffset.json", OffsetTable) or OffsetTable()
        table = {}
        for key, queues in saved.offset_table.items():
            topic, _, group = key.rpartition("@")
            table[topic, group] = dict(queues)
        return table

    def save_offsets(self, table: dict[tuple[str, str], dict[int, int]]) -> None:
        flat = {f"{topic}@{group}": queues for (topic, group), queues in table.items()}
        self._save("consumerOffset.json", OffsetTable(offset_table=flat))

    def load_delay_offsets(self) -> DelayOffsetTable:
        return self._load("delayOffset.json", DelayOffsetTable) or DelayOffsetTable()

    def save_delay_offsets(self, table: DelayOffsetTable) -> None:
        self._save("delayOffset.json", table)

    def _load(self, name: str, kind: type[B]) -> B | None:
        path = self._directory / name
        content = read_or_backup(path)
        if content is None:
            return None
        try:
            return kind.decode(content)
        except ProtocolError as error:
            raise StateError(f"{path} cannot be read ({error}): mend it, or put its .bak in its place") from None

    def _save(self, name: str, body: Body) -> None:
        replace_file(self._directory / name, body.encode(standard=True), backup=True, sync=False)
