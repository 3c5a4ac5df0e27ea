"""How far each group is in each queue: the offset that it wants next; and saving that beside everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from evenq.supervision import FailureLog

__all__ = ["BeyondEnd", "GroupOffsets", "OffsetsSaver"]

# Saving takes this part of a thread's time at most: a large table is saved less often.
_SAVING_SHARE = 0.1

Table = dict[tuple[str, str], dict[int, int]]


class BeyondEnd(NamedTuple):
    """An offset of a group that its queue does not have, and the one that takes its place."""

    group: str
    topic: str
    queue_id: int
    offset: int
    limited: int


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
        # the keys of the table whose queues changed since :meth:`take_changes` was called
        self._changed: set[tuple[str, str]] = set()
        # where members are to go on that have not been told yet, and what they read last
        self._resets: dict[tuple[str, str, int], int] = {}
        self._pulled: dict[tuple[str, str, int], int] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self._resets and (topic, group, queue_id) in self._resets:
            return
        key = topic, group
        self._table.setdefault(key, {})[queue_id] = offset
        self._changed.add(key)

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
            self._changed.add((topic, target))

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
            self._changed.add(key)
        for table in (self._resets, self._pulled):
            for queue in [queue for queue in table if queue[place] == name]:
                del table[queue]

    def limit(self, end_of: Callable[[str, int], int | None]) -> list[BeyondEnd]:
        """Set offsets behind the end of their queue to that end, and tell which ones. For starts.

        Offsets are saved before messages are on the disk. When the power fails, a queue may have lost messages that a
        group has consumed: those that come in their place are others, which the group has not seen. ``end_of`` gives
        the end of a queue of a topic; None where nothing is known of it.
        """
        found = []
        for (topic, group), queues in self._table.items():
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if end is not None and not 0 <= offset <= end:
                    found.append(BeyondEnd(group, topic, queue_id, offset, end if offset > end else 0))
        for group, topic, queue_id, _, limited in found:
            self.commit(group, topic, queue_id, limited)
        return found

    def entries(self) -> Iterable[tuple[tuple[str, str], Mapping[int, int]]]:
        """Everything, by topic and group, as it is now: for whoever is done with it before anything changes."""
        return self._table.items()

    @property
    def is_changed(self) -> bool:
        """Whether :meth:`take_changes` would give something."""
        return bool(self._changed)

    def take_changes(self) -> dict[tuple[str, str], dict[int, int] | None]:
        """What changed since the last call, by topic and group; None for what was forgotten."""
        changed, self._changed = self._changed, set()
        return {key: dict(self._table[key]) if key in self._table else None for key in changed}

    def table(self) -> Table:
        """Everything, by topic and group."""
        return {key: dict(queues) for key, queues in self._table.items()}


class OffsetsSaver:
    """Saves the offsets in another thread, from a copy that is kept up with the changes: writing a hundred thousand of
    them takes longer than anybody should wait."""

    def __init__(
        self, offsets: GroupOffsets, save: Callable[[Table], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._offsets = offsets
        self._save = save
        self._now = now
        self._copy = offsets.table()
        offsets.take_changes()
        # whether the copy has what is not saved
        self._unsaved = False
        self._running: asyncio.Future[None] | None = None
        self._due = float("-inf")
        self._failures = FailureLog("saving the offsets of groups")

    @property
    def is_saved(self) -> bool:
        """Whether all is saved as it is now."""
        return self._running is None and not self._unsaved and not self._offsets.is_changed

    def tick(self) -> None:
        """Begin to save what changed; to be called often."""
        if self._running is None and self._now() >= self._due and self._update():
            self._start(self._now())

    def _update(self) -> bool:
        """Bring the copy up to date; whether there is something to save."""
        for key, queues in self._offsets.take_changes().items():
            self._unsaved = True
            if queues is None:
                self._copy.pop(key, None)
            else:
                self._copy[key] = queues
        return self._unsaved

    def _start(self, began: float) -> None:
        # no task: one that is cancelled ends before the thread does
        self._running = asyncio.get_running_loop().run_in_executor(None, self._save, self._copy)
        self._unsaved = False
        self._running.add_done_callback(partial(self._end, began))

    def _end(self, began: float, saving: asyncio.Future[None]) -> None:
        error = None if saving.cancelled() else saving.exception()
        if saving.cancelled() or error is not None:
            self._unsaved = True
        if isinstance(error, Exception):
            self._failures.record(error, "trying again soon")
        self._due = began + (self._now() - began) / _SAVING_SHARE
        self._running = None

    async def finish(self) -> None:
        """Save what is not saved. An error of that is the caller's."""
        if self._running is not None:
            await asyncio.wait([self._running])
        if self._update():
            self._save(self._copy)
            self._unsaved = False
