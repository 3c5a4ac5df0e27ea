"""Messages that wait for a time of their own, and their delivery when it has come.

They wait in one queue of RocketMQ's own topic, in the order in which they came. From there each goes into the timer log
under the second in which it is due, and when that second is over, into its own queue. A message that is due later than
in two days is put into the queue of the timers again by then: so none waits in a part of the log that is old enough to
be deleted.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from evenq.broker.admission import INT32, INT64, BrokerProperty, wire_int
from evenq.broker.scheduling.parked import TIMER_PRECISION, TIMER_TOPIC, attempt, copy_for, destination
from evenq.broker.store.state_files import StateFile
from evenq.broker.store.store import Store
from evenq.broker.store.timerlog import DELETE, FILE_SIZE, NO_UNIT, NORMAL, ROLL, TimerCheckpoint, TimerLog, TimerUnit
from evenq.model import Property, java_string_hash
from evenq.protocol.view import MessageView
from evenq.supervision import FailureLog

__all__ = ["Timers"]

log = logging.getLogger(__name__)

_ROLL_AFTER = 2 * 86_400_000
# Whoever says that later messages than these were delivered is wrong, whatever became of the clock.
_AHEAD = 86_400_000


class Timers:
    """Delivers what is due. ``commit`` makes what was appended to the store last, and tells who waits.

    A message is delivered up to a second later than asked for, never earlier: so does the Java broker.
    """

    def __init__(
        self,
        store: Store,
        directory: Path,
        clock: Callable[[], float],
        commit: Callable[[], None],
        *,
        file_size: int = FILE_SIZE,
    ) -> None:
        self._store = store
        self._clock = clock
        self._commit = commit
        self._failures = FailureLog("delivering a timed message")
        self._file = StateFile(directory / "config" / "timercheck", store.files)
        self._saved = self._file.load(TimerCheckpoint.decode) or TimerCheckpoint()
        latest = max(int(clock() * 1000), store.last_time) + _AHEAD
        if not 0 <= self._saved.read_time <= latest:
            log.warning("%s cannot be right: timers go on where the log of messages ends", self._file.path)
            self._saved = TimerCheckpoint(_second_of(store.last_time) - TIMER_PRECISION)
        # Java makes it again from the timer log, while what is in it now may point to what is no longer there.
        (directory / "timerwheel").unlink(missing_ok=True)
        self._log = TimerLog(directory / "timerlog", file_size, store.files)
        # everything due before this second is delivered, and so many messages of it
        self._second, self._done = self._saved.read_time, self._saved.done
        # the last unit of each second that is not delivered, and these seconds, the earliest first
        self._last: dict[int, int] = {}
        self._seconds: list[int] = []
        # what is left of the second that is being delivered, and the messages of it that were taken back
        self._due: deque[TimerUnit] = deque()
        self._taken_back: set[str] = set()
        # where messages are in the log that stand in the timer log and were delivered before a kill
        self._known: set[int] = set()
        # the first message of the timers' queue that is not in the timer log
        self._next = self._replay()
        # The log has lost those before this one that are not in it: they are added again, unless they were delivered.
        self._lost_to = self._find_lost()
        self._delivered_to = self._second
        self._known_next = max(self._delivered(), self._lost_to)
        store.save_with_checkpoints(self._saver)

    # -- after a start

    def _replay(self) -> int:
        """Read the timer log; behind which message of the timers' queue it ends."""
        end = 0
        last: TimerUnit | None = None
        for position, unit in self._log.units():
            if unit.log_offset >= self._store.log.end:
                break
            if unit.second >= self._second:
                self._note(unit.second, position)
                if unit.log_offset in self._store.delivered_origins:
                    self._known.add(unit.log_offset)
            end, last = self._log.behind(position), unit
        self._log.cut(end)
        newest = self._store.message_at(last.log_offset) if last else None
        low, high = self._store.bounds(TIMER_TOPIC, 0)
        return min(max(newest.queue_offset + 1 if newest else 0, low), high)

    def _find_lost(self) -> int:
        """Behind the last message that was in the timer log at the last checkpoint."""
        end = min(self._saved.queue_offset, self._store.bounds(TIMER_TOPIC, 0)[1])
        if self._next < end:
            log.warning("the timer log lacks what it had of messages %d to %d: it is made again", self._next, end - 1)
        return end

    def _was_delivered(self, message: MessageView, out: int) -> bool:
        """Whether a message that the timer log has lost was delivered, or moved on in time, before the last start."""
        second = min(_second_of(out), _second_of(message.store_timestamp) + _ROLL_AFTER)
        return self._next < self._lost_to and second < self._delivered_to

    def _delivered(self) -> int:
        """Behind the last message of the timers' queue that was delivered before a kill, where that was not saved."""
        messages = map(self._store.message_at, self._store.delivered_origins)
        offsets = (message.queue_offset for message in messages if message and message.topic == TIMER_TOPIC)
        return max(offsets, default=-1) + 1

    # -- from the queue into the timer log

    def _enqueue(self, limit: int) -> None:
        low, high = self._store.bounds(TIMER_TOPIC, 0)
        self._next = max(self._next, low)
        while self._next < high and limit > 0:
            position, size, _ = self._store.queue(TIMER_TOPIC, 0).unit(self._next)
            message = self._store.message_at(position)
            out = None if message is None else _due(message)
            if message is None or out is None:
                log.warning("message %d of %s is skipped: it does not say when it is due", self._next, TIMER_TOPIC)
            elif not self._was_delivered(message, out):
                self._add(message, size, out)
                if position in self._store.delivered_origins:
                    # It was delivered before a kill, and the timer log had lost it when the power failed. It is passed
                    # when it is due, as the others are.
                    self._known.add(position)
            self._next += 1
            limit -= 1

    def _add(self, message: MessageView, size: int, out: int) -> None:
        now = _second_of(int(self._clock() * 1000))
        second = _second_of(out)
        kind = NORMAL
        if second - now >= _ROLL_AFTER:
            second, kind = now + _ROLL_AFTER, kind | ROLL
        if BrokerProperty.CANCELS in message.properties:
            kind |= DELETE
        second = max(second, self._second)
        # The unit has 32 bits for the time between the two, and the broker may have been stopped for long.
        written = min(max(now, second - _ROLL_AFTER), second + _ROLL_AFTER)
        topic = message.properties.get(Property.REAL_TOPIC, "")
        previous = self._last.get(second, NO_UNIT)
        unit = TimerUnit(
            previous, kind, written, second - written, message.commit_log_offset, size, java_string_hash(topic)
        )
        self._note(second, self._log.append(unit))

    def _note(self, second: int, position: int) -> None:
        if second not in self._last:
            heapq.heappush(self._seconds, second)
        self._last[second] = position

    # -- from the timer log into the real queues

    def deliver(self, limit: int = 1000) -> bool:
        """Deliver what is due now, at most ``limit`` messages; whether more of it may be left."""
        if not self._due:
            self._enqueue(limit)
            self._load()
        batch = list(islice(self._due, limit))
        if batch:
            for unit in batch:
                attempt(self._store, self._failures, "timed", unit.log_offset, partial(self._deliver_one, unit))
            self._commit()
            self._known.difference_update(unit.log_offset for unit in batch)
            self._count(len(batch))
        more = self._next < self._store.bounds(TIMER_TOPIC, 0)[1]
        return more or bool(self._due) or bool(self._seconds and self._is_over(self._seconds[0]))

    def finish(self) -> None:
        """Deliver what is left of a second that is partly delivered: Java would deliver all of it again."""
        while self._due:
            self.deliver()

    def _is_over(self, second: int) -> bool:
        return second + TIMER_PRECISION <= self._clock() * 1000

    def _load(self) -> None:
        """Begin with the next second that is over."""
        if not self._seconds or not self._is_over(self._seconds[0]):
            return
        second = heapq.heappop(self._seconds)
        units = self._chain(second)
        del self._last[second]
        if second != self._second:
            self._second, self._done = second, 0
        self._known.difference_update(unit.log_offset for unit in units[: self._done])
        self._taken_back = {key for unit in units if unit.kind & ~NORMAL == DELETE and (key := self._target(unit))}
        self._due.extend(units[self._done :])
        self._count(0)

    def _count(self, delivered: int) -> None:
        for _ in range(delivered):
            self._due.popleft()
        self._done += delivered
        if not self._due:
            self._second, self._done = self._second + TIMER_PRECISION, 0

    def _chain(self, second: int) -> list[TimerUnit]:
        """The units of a second, in the order in which they came."""
        units = []
        position = self._last[second]
        while position != NO_UNIT:
            unit = self._log.read(position)
            units.append(unit)
            # a chain only ever leads back; anything else is damage
            position = unit.previous if unit.previous < position else NO_UNIT
        return units[::-1]

    def _target(self, unit: TimerUnit) -> str | None:
        """Which message a message takes back."""
        message = self._store.message_at(unit.log_offset)
        return None if message is None else message.properties.get(BrokerProperty.CANCELS)

    def _deliver_one(self, unit: TimerUnit) -> None:
        if unit.log_offset in self._store.delivered_origins:
            # It was delivered before a kill, when that could not be saved any more. Others before it may not have been.
            return
        message = self._store.message_at(unit.log_offset)
        real = destination(message) if message else None
        if message is None or real is None:
            log.warning("the timed message at %d of the log cannot be delivered: it is damaged", unit.log_offset)
            return
        properties = message.properties
        if unit.kind & ROLL:
            rolled = (wire_int(properties.get(BrokerProperty.TIMER_ROLLED), 0, INT32[1] - 1) or 0) + 1
            rolls = {BrokerProperty.TIMER_ROLLED: str(rolled)}
            self._store.append(copy_for(message, TIMER_TOPIC, 0, {**properties, **rolls}))
        elif not unit.kind & DELETE and f"{real[0]}+{message.unique_key}" not in self._taken_back:
            times = {
                BrokerProperty.TIMER_ENQUEUED: str(unit.written),
                BrokerProperty.TIMER_DEQUEUED: str(int(self._clock() * 1000)),
            }
            self._store.append(copy_for(message, *real, {**properties, **times}))

    # -- the rest

    def _saver(self) -> Callable[[], None] | None:
        if self._known or self._next < self._known_next:
            return None
        self._log.trim(self._store.log.start)
        reached = TimerCheckpoint(self._second, self._next, self._done)

        def save() -> None:
            if reached != self._saved:
                self._log.sync()
                self._file.save(reached.encode())
                self._file.sync()
                self._saved = reached

        return save

    def close(self) -> None:
        self._log.close()


def _due(message: MessageView) -> int | None:
    """When a waiting message is due; None where it does not say so."""
    return wire_int(message.properties.get(BrokerProperty.TIMER_OUT), 0, INT64[1])


def _second_of(time: int) -> int:
    return time // TIMER_PRECISION * TIMER_PRECISION
