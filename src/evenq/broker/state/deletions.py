"""Deleting topics, so that each is whole or wholly gone however the broker ends.

A topic stands in several files, which cannot be replaced together. So its name is noted first, in
``config/deletingTopics.json``, and forgotten when nothing of it is left:

======  =================================================  =========================================================
step    what is done                                       if the broker ends behind it
======  =================================================  =========================================================
1       the name is noted                                  the next start goes on with step 2
2       the store notes that the messages are gone, and    the same
        removes the files of the queues
3       ``topics.json`` is saved, the client is answered   the same
4       ``consumerOffset.json`` is saved                   the same
5       the name is forgotten                              the topic is gone
======  =================================================  =========================================================

Where step 1 fails, nothing has changed. Where a later step fails, the client is told so, and the rest is done soon. A
topic that is created again meanwhile is a new one: its name is forgotten when it is saved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from evenq.broker.state.offsets import GroupOffsets
from evenq.broker.state.topics import Topics
from evenq.broker.store.store import Store

__all__ = ["TopicDeletions"]

log = logging.getLogger(__name__)


class TopicDeletions:
    """The topics that are being deleted."""

    def __init__(self, store: Store, topics: Topics, offsets: GroupOffsets) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._names = frozenset(store.config.load_deleting_topics())

    @property
    def is_idle(self) -> bool:
        return not self._names

    def resume(self) -> None:
        """Go on with what the end of the last run has interrupted."""
        for name in sorted(self._names):
            log.warning("topic %s was being deleted when the broker ended: it is deleted now", name)
            self._delete(name)

    def delete(self, name: str) -> None:
        """Steps 1 and 2. The tables are saved with this turn, and by the housekeeping."""
        self._save(self._names | {name})
        self._delete(name)

    def _delete(self, name: str) -> None:
        self._topics.delete(name)
        self._offsets.forget_topic(name)
        self._store.delete_topic(name)

    def topics_saved(self) -> None:
        """Forget what was created again."""
        if created := [name for name in self._names if name in self._topics]:
            self._forget(created)

    def finish(self) -> None:
        """Step 5, when topics and offsets are saved."""
        for name in self._names:
            # it may have failed before
            self._store.delete_topic(name)
        self._store.config.sync()
        self._forget(self._names)

    def _forget(self, names: Iterable[str]) -> None:
        self._save(self._names.difference(names))

    def _save(self, names: frozenset[str]) -> None:
        self._store.config.save_deleting_topics(sorted(names))
        self._names = names
