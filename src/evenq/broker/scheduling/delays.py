"""Messages that wait at a delay level, and their delivery when they are due.

Each level has a queue of its own, in which the first message is always the first one due. How far each queue is
delivered stands in ``config/delayOffset.json``, as with the Java broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from evenq.broker.scheduling.parked import attempt, copy_for, destination
from evenq.broker.store.levels import SCHEDULE_TOPIC
from evenq.broker.store.store import Store
from evenq.protocol.bodies import DataVersion, DelayOffsetTable
from evenq.supervision import FailureLog

__all__ = ["DelayedMessages"]

log = logging.getLogger(__name__)


class DelayedMessages:
    """Delivers what is due at each level. ``commit`` makes what was appended to the store last, and tells who waits."""

    def __init__(self, store: Store, clock: Callable[[], float], commit: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._commit = commit
        self._failures = FailureLog("delivering a delayed message")
        saved = store.config.load_delay_offsets()
        self._offsets = dict(saved.offset_table)
        for level, offset in saved.offset_table.items():
            if 1 <= level <= store.levels.highest and offset > store.bounds(SCHEDULE_TOPIC, level - 1)[1]:
                self._offsets[level] = self._where_log_ends(level)
                log.warning("level %d cannot be at %d: it goes on at %d", level, offset, self._offsets[level])
        self._version = self._saved = saved.data_version or DataVersion()
        # how far each level was delivered before a kill, perhaps with gaps, where that was not saved any more
        self._known = self._delivered()
        store.save_with_checkpoints(self._saver)

    def _where_log_ends(self, level: int) -> int:
        """The first message of a level that was not due when the last message was stored."""
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        return queue.first(lambda offset: queue.unit(offset)[2] > self._store.last_time)

    def _delivered(self) -> dict[int, int]:
        known: dict[int, int] = {}
        for position in self._store.delivered_origins:
            message = self._store.message_at(position)
            if message is not None and message.topic == SCHEDULE_TOPIC:
                level = message.queue_id + 1
                known[level] = max(known.get(level, 0), message.queue_offset + 1)
        return known

    def _reach(self, offsets: dict[int, int]) -> None:
        if offsets.items() - self._offsets.items():
            self._offsets |= offsets
            self._version = self._version.next(int(self._clock() * 1000))

    def deliver(self, limit: int = 1000) -> bool:
        """Deliver what is due now, at most ``limit`` messages; whether more of it may be left."""
        left = limit
        reached = {}
        for level in range(1, self._store.levels.highest + 1):
            start = self._offset(level)
            if start == self._store.bounds(SCHEDULE_TOPIC, level - 1)[1]:
                continue
            offset = self._deliver_level(level, start, left)
            if offset > start:
                reached[level] = offset
                left -= offset - start
        if reached:
            self._commit()
            self._reach(reached)
        return left <= 0

    def _offset(self, level: int) -> int:
        """The first message of a level that is not delivered."""
        low, high = self._store.bounds(SCHEDULE_TOPIC, level - 1)
        return max(low, min(self._offsets.get(level, 0), high))

    def _deliver_level(self, level: int, offset: int, limit: int) -> int:
        """Deliver what is due at a level from ``offset`` on; the offset of what is next."""
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        now = int(self._clock() * 1000)
        latest = now + self._store.levels.delay(level)
        while offset < queue.max and limit > 0:
            position, _, due = queue.unit(offset)
            # nothing can be due later than a message of now: such a time is from a clock that was wrong
            if now < due <= latest:
                break
            # of a missing message only the offset is left
            if position >= 0:
                attempt(self._store, self._failures, "delayed", position, partial(self._deliver_one, position))
            offset += 1
            limit -= 1
        return offset

    def _deliver_one(self, position: int) -> None:
        if position in self._store.delivered_origins:
            # It was delivered before a kill, when that could not be saved any more. Others before it may not have been.
            return
        message = self._store.message_at(position)
        real = destination(message) if message else None
        if message is None or real is None:
            log.warning("the delayed message at %d of the log cannot be delivered: it is damaged", position)
            return
        self._store.append(copy_for(message, *real, message.properties))

    def _saver(self) -> Callable[[], None] | None:
        if any(self._offset(level) < offset for level, offset in self._known.items()):
            return None
        version = self._version
        table = DelayOffsetTable(offset_table=dict(self._offsets), data_version=version)

        def save() -> None:
            if version != self._saved:
                self._store.config.save_delay_offsets(table)
                self._saved = version

        return save
