"""The broker's settings and offsets on disk, in ``config/``, as the Java broker writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from evenq.broker.store.files import OS_FILES, Files
from evenq.broker.store.statefile import StateFile
from evenq.errors import StateError
from evenq.protocol.bodies import Body, DelayOffsetTable, GroupConfigTable, OffsetTable, TopicConfigTable

__all__ = ["ConfigFiles"]

B = TypeVar("B", bound=Body)
T = TypeVar("T")


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    def decode(content: bytes) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise StateError(str(error)) from None

    return decode


class ConfigFiles:
    """``topics.json``, ``subscriptionGroup.json``, ``consumerOffset.json``, ``delayOffset.json``, and evenq's own
    ``deletedTopics.json`` and ``deletingTopics.json``. What is saved survives this process; :meth:`sync` brings it to
    the disk."""

    def __init__(self, directory: Path, files: Files = OS_FILES) -> None:
        names = (
            "topics.json",
            "subscriptionGroup.json",
            "consumerOffset.json",
            "delayOffset.json",
            "deletedTopics.json",
            "deletingTopics.json",
        )
        self._files = {name: StateFile(directory / name, files) for name in names}

    def sync(self) -> None:
        """Return when all that was saved is on the disk. May run in another thread."""
        for file in self._files.values():
            file.sync()

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

    def load_deleted_topics(self) -> dict[str, int]:
        """Topics that were deleted, each with the log offset before which its messages are gone."""
        return self._files["deletedTopics.json"].load(_decoder(dict[str, int])) or {}

    def save_deleted_topics(self, table: dict[str, int]) -> None:
        self._files["deletedTopics.json"].save(msgspec.json.encode(table))

    def load_deleting_topics(self) -> Sequence[str]:
        """Topics whose deletion had begun and not ended."""
        return self._files["deletingTopics.json"].load(_decoder(list[str])) or ()

    def save_deleting_topics(self, names: Sequence[str]) -> None:
        self._files["deletingTopics.json"].save(msgspec.json.encode(names))

    def _load(self, name: str, kind: type[B]) -> B | None:
        return self._files[name].load(kind.decode)

    def _save(self, name: str, body: Body) -> None:
        self._files[name].save(body.encode(standard=True))
