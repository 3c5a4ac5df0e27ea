"""Finding the true end of a store after a start: a torn tail is cut, consume queues are made whole again.

Everything before a certain log offset, the starting point, is known to be on the disk, in the log and in the consume
queues. From there on the log alone is trusted, record by record, and the consume queues are filled from it anew.

Recovery explains and reports, and deletes nothing that it cannot explain:

a file of the log is missing
    It goes on in the next one. The messages in it are missing, all others are kept.
the last files of the log are missing
    If the mark of the checkpoint, up to which the log was on the disk, is behind all files, the log goes on in the file
    behind the mark. Places in the log and offsets of queues that were given are not given again.
units of a queue are empty or out of order
    They are made again from the log, if need be from a place before the starting point.
a record has an offset behind the end of its queue
    The offsets before it get missing units, so that it and later messages keep theirs. But if the next record of the
    queue has the same offset or a lower one, the number is damaged, and the record gets no unit. It gets none either
    if the log has no room for that many messages, unless the next record has the offset that follows.
a record has an offset that its queue has already
    Nothing is done, if it is the same record; otherwise the first one is kept.
a half message, or one rolled back, is in an ordinary topic
    Its offset gets a missing unit.
no whole record, and only zeros
    The log ends there.
no whole record, but something else
    It goes on where the log can be read again; what is before is copied and passed over
    (:mod:`evenq.broker.store.damage`). If it cannot be read again, the rest is copied, and the log ends there.
a message of a topic that was deleted behind it
    It stays deleted, also where a new topic has its name.
zeros in properties without a checksum
    The record counts as whole if a whole record follows, perhaps after more such records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.consumequeue import ConsumeQueue
from evenq.broker.store.damage import fill, is_marker, next_whole, save
from evenq.broker.store.files import OS_FILES, Files
from evenq.broker.store.levels import DEFAULT_LEVELS, SCHEDULE_TOPIC, DelayLevels
from evenq.broker.store.origins import is_origin
from evenq.broker.store.reading import is_intact
from evenq.broker.store.scan import BLANK, Entry, read_entry, store_time
from evenq.broker.store.state_files import Checkpoint
from evenq.protocol.flags import SysFlag
from evenq.protocol.names import PATH_LIMIT, topic_error
from evenq.protocol.records import MIN_RECORD, decode_messages

__all__ = ["QueueGap", "Recovered", "RecoveryReport", "Skipped", "first_time", "is_consumable", "recover"]

# enough of a record to hold its store time, whatever its hosts are
_TIME_BYTES = 80

# the marker at the end of a file has at least so many bytes
_MARKER = 8

# After so many starting points that were too late, all of the log is read.
_ATTEMPTS = 4

# So many entries at the end of a queue are compared with the log, until one is right.
_LOOK_BACK = 512


class Skipped(NamedTuple):
    """A part of the log that no consumer sees, and why."""

    start: int
    end: int
    reason: str
    # the file to which its bytes were copied
    saved_as: Path | None = None


class QueueGap(NamedTuple):
    """Offsets of a queue, from ``first`` up to ``end``, whose messages are not in the log."""

    topic: str
    queue_id: int
    first: int
    end: int


@dataclass(slots=True)
class RecoveryReport:
    """What a start found: from where to where the log was read, how many records that were, and what was wrong."""

    clean: bool
    start: int = 0
    end: int = 0
    records: int = 0
    cut_bytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    missing_files: list[tuple[int, int]] = field(default_factory=list)
    queue_gaps: list[QueueGap] = field(default_factory=list)

    def keep_free(self, queue: ConsumeQueue, end: int) -> None:
        """Let the next message of the queue get the offset ``end`` at least."""
        if queue.max < end:
            self.queue_gaps.append(QueueGap(queue.topic, queue.queue_id, queue.max, end))
            queue.skip_to(end)

    def lines(self) -> Iterator[str]:
        """What an operator must know, a sentence each; nothing where nothing was wrong."""
        for start, end in self.missing_files:
            yield f"files of the log are missing, from {start} to {end}: their messages are lost, all others are kept"
        for start, end, reason, saved_as in self.skipped:
            copied = f"; its bytes are in {saved_as}" if saved_as else ""
            yield f"the log from {start} to {end} is skipped: {reason}{copied}"
        for topic, queue_id, first, end in self.queue_gaps:
            lost = f"message at offset {first} is" if end == first + 1 else f"messages at {first} to {end - 1} are"
            yield f"queue {queue_id} of {topic}: the {lost} not in the log"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The report, the time of the last message found, and the log offsets of the records of which those that were read
    were made (see :mod:`evenq.broker.store.origins`)."""

    report: RecoveryReport
    last_time: int
    delivered_origins: frozenset[int]


def is_consumable(sys_flag: int) -> bool:
    """Half messages and rolled back ones have no place in a consume queue."""
    return sys_flag & SysFlag.TRANSACTION in (0, SysFlag.COMMIT)


def recover(
    log: CommitLog,
    queues: Iterable[ConsumeQueue],
    find: Callable[[str, int], ConsumeQueue],
    checkpoint: Checkpoint,
    *,
    clean: bool,
    now: int,
    damaged_to: Path,
    deleted: Mapping[str, int] | None = None,
    lost: tuple[int, int] | None = None,
    levels: DelayLevels = DEFAULT_LEVELS,
    files: Files = OS_FILES,
) -> Recovered:
    """Cut the log and the queues to what is whole and consistent. ``find`` gives a queue, new ones too; ``now`` is the
    time in milliseconds. What is damaged is copied to the directory ``damaged_to``. ``deleted`` has topics with the log
    offset before which their messages are gone. ``lost`` is what is missing at the end of the log, up to the file in
    which it goes on."""
    if lost:
        # the mark is behind what the queues can be made of
        checkpoint = replace(checkpoint, mark=0)
    known = {(queue.topic, queue.queue_id): queue for queue in queues}

    def queue_of(topic: str, queue_id: int) -> ConsumeQueue:
        queue = known[topic, queue_id] = find(topic, queue_id)
        return queue

    ends = {queue: queue.max for queue in known.values()} if lost else {}
    damaged = [queue for queue in known.values() if queue.has_gaps]
    for queue in damaged:
        queue.cut(log.filled)
    start = _starting_point(log, known.values(), checkpoint, clean=clean, now=now)
    ends_wrongly = {
        queue: end for queue in known.values() if (end := _whole_end(log, queue, start, clean=clean)) is not None
    }
    start = max(log.start, min([start, *(queue.log_end for queue in damaged), *ends_wrongly.values()]))
    # What was cut is not there at a second attempt, and neither is what was damaged.
    named = _named(known.values(), start) if not clean else np.empty(0, np.int64)
    last_time = checkpoint.log_time if not checkpoint.by_java or checkpoint.log_time <= now else 0
    cuts: list[Skipped] = []
    attempts = 0
    while True:
        for queue in known.values():
            if not clean or attempts or queue.log_end > start or queue in ends_wrongly:
                queue.cut(start)
        report = RecoveryReport(clean, start)
        damage = _Damage(log, named, damaged_to, files, cuts)
        from_checkpoint = 0 < checkpoint.mark <= start
        reading = _Reading(log, queue_of, report, levels, last_time, from_checkpoint, damage, deleted or {})
        try:
            reading.run()
            break
        except _StartEarlier as earlier:
            attempts += 1
            start = max(earlier.position, log.start) if attempts < _ATTEMPTS else log.start
    report.skipped[:0] = cuts
    for queue, end in ends.items():
        report.keep_free(queue, end)
    if lost and lost not in report.missing_files:
        report.missing_files.append(lost)
    log.cut(report.end, synced=report.start)
    for queue in known.values():
        queue.trim(log.start)
    return Recovered(report, reading.last_time, frozenset(reading.origins(log)))


def _whole_end(log: CommitLog, queue: ConsumeQueue, start: int, *, clean: bool) -> int | None:
    """Where the last message of a queue ends that is in the log as its entry says, if damaged entries follow; None if
    none do. After an unclean end, messages behind ``start`` may be missing in the log."""
    is_damaged = False
    for offset in range(queue.max - 1, max(queue.min, queue.max - _LOOK_BACK) - 1, -1):
        position, size, _ = queue.unit(offset)
        if size == 0:
            # known to be missing
            continue
        if is_intact(log, position, size) or 0 <= position < log.start:
            return max(position + size, log.start) if is_damaged else None
        is_damaged |= clean or not start <= position < log.filled
    return log.start if is_damaged else None


def _named(queues: Iterable[ConsumeQueue], start: int) -> NDArray[np.int64]:
    """The places behind ``start`` that entries of queues name, in order."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(queue.places_from(start) for queue in queues)]))


class _Damage:
    """Goes on behind places where no whole record is."""

    def __init__(
        self, log: CommitLog, named: NDArray[np.int64], directory: Path, files: Files, found: list[Skipped]
    ) -> None:
        self._log = log
        self._named = named
        self._directory = directory
        self._files = files
        self._found = found

    def behind(self, offset: int, last_time: int, read_time: int) -> int | None:
        """Where the log goes on behind ``offset``; None where it ends there."""
        end = self._log.data_end(offset)
        if end == offset:
            return None
        place = next_whole(self._log, offset, end, self._named, read_time)
        copy = save(self._log, offset, end if place is None else place, self._directory, self._files)
        if place is None:
            self._found.append(Skipped(offset, end, "no whole message follows, the log is cut there", copy))
        else:
            self._found.append(Skipped(offset, place, "it is damaged", copy))
            fill(self._log, offset, place, last_time)
        return place


class _StartEarlier(Exception):
    """Units of a queue are missing that stood before the starting point."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class _Reading:
    """Reads the log from the starting point on, and fills the queues."""

    def __init__(
        self,
        log: CommitLog,
        find: Callable[[str, int], ConsumeQueue],
        report: RecoveryReport,
        levels: DelayLevels,
        last_time: int,
        from_checkpoint: bool,
        damage: _Damage,
        deleted: Mapping[str, int],
    ) -> None:
        self._log = log
        self._find = find
        self._levels = levels
        self._damage = damage
        self._deleted = deleted
        self.report = report
        self.last_time = last_time
        # what follows is not much older: the time of the last record, before the first that of the checkpoint
        self._read_time = last_time if from_checkpoint else 0
        self._origins: dict[int, Entry] = {}
        # offsets behind half messages in ordinary queues
        self._given: dict[ConsumeQueue, int] = {}
        # the last record of a queue, if its offset is behind the end of the queue
        self._suspects: dict[ConsumeQueue, tuple[int, Entry]] = {}
        self._gaps = [gap for gap in log.gaps if gap[1] > log.start]

    def run(self) -> None:
        report = self.report
        report.end = report.start
        report.missing_files += self._gaps
        for offset, entry in self._records():
            report.end = offset + entry.size
            report.records += 1
            self.last_time = self._read_time = entry.store_time
            if entry.origin is not None:
                self._origins[entry.origin] = entry
            if offset < self._deleted.get(entry.topic, 0):
                continue
            if not topic_error(entry.topic, PATH_LIMIT) and entry.queue_id >= 0:
                self._dispatch(self._find(entry.topic, entry.queue_id), offset, entry)
        for queue, (offset, entry) in self._suspects.items():
            self._settle(queue, offset, entry)
        for queue, given in self._given.items():
            queue.skip_to(given)

    def _records(self) -> Iterator[tuple[int, Entry]]:
        """The whole records with their log offsets, up to the first that is not whole."""
        log, offset = self._log, self.report.start
        while offset < log.filled:
            file_end = log.file_end(offset)
            if not log.holds(offset) or file_end - offset < _MARKER:
                self.report.end = offset = file_end
                continue
            data, base = log.file(offset)
            entry = read_entry(data, offset - base, offset)
            if entry is BLANK and is_marker(log, offset):
                offset = file_end
            elif entry is None or entry is BLANK or (entry.doubtful and not self._goes_on(offset + entry.size)):
                behind = self._damage.behind(offset, self.last_time, self._read_time)
                if behind is None:
                    self.report.cut_bytes = self._log.data_end(offset) - offset
                    return
                offset = behind
            else:
                yield offset, entry
                offset += entry.size

    def _goes_on(self, offset: int) -> bool:
        """Whether a whole record follows, perhaps after some whose properties hold zeros."""
        data, base = self._log.file(offset - 1)
        while (entry := read_entry(data, offset - base, offset)) is not None and entry.doubtful:
            offset += entry.size
        return entry is not None

    def _dispatch(self, queue: ConsumeQueue, log_offset: int, entry: Entry) -> None:
        wanted = entry.queue_offset
        if not is_consumable(entry.sys_flag):
            # The Java broker gives such records no offset and writes 0, so what follows may have the same.
            if wanted >= queue.max:
                self._give(queue, log_offset, entry)
            return
        if suspect := self._suspects.pop(queue, None):
            self._settle(queue, *suspect, wanted)
        given = self._given.get(queue, 0)
        if queue.max < given <= wanted:
            queue.skip_to(given)
        if wanted > queue.max:
            before = queue.log_end
            if before < self.report.start and self.report.start > self._log.start:
                raise _StartEarlier(before)
            self._suspects[queue] = log_offset, entry
        elif wanted == queue.max:
            self._append(queue, log_offset, entry)
        else:
            if wanted >= queue.min and (at := queue.unit(wanted)[0]) != log_offset:
                self._skip(
                    log_offset, entry, f"it claims offset {wanted} of {_name(queue)}, which the record at {at} has"
                )

    def _give(self, queue: ConsumeQueue, log_offset: int, entry: Entry) -> None:
        """Note that a record without a unit of its own has an offset, if there is room for those before it."""
        wanted = entry.queue_offset
        if _has_room(queue, wanted, log_offset):
            self._given[queue] = wanted + 1
        else:
            self._skip(log_offset, entry, f"it claims offset {wanted} of {_name(queue)}, which ends at {queue.max}")

    def _settle(self, queue: ConsumeQueue, log_offset: int, entry: Entry, following: int | None = None) -> None:
        """Believe the offset of a record or not, given that of the ``following`` one in its queue."""
        wanted, first = entry.queue_offset, queue.max
        has_room = _has_room(queue, wanted, log_offset)
        if following is not None and following <= wanted:
            self._skip(log_offset, entry, f"it claims offset {wanted} of {_name(queue)}, and the next one {following}")
        elif not has_room and following != wanted + 1:
            self._skip(log_offset, entry, f"it claims offset {wanted} of {_name(queue)}, which ends at {first}")
        else:
            queue.skip_to(wanted, (log_offset, entry.size))
            if first >= queue.min:
                self.report.queue_gaps.append(QueueGap(queue.topic, queue.queue_id, first, wanted))
            self._append(queue, log_offset, entry)

    def _append(self, queue: ConsumeQueue, log_offset: int, entry: Entry) -> None:
        delayed = queue.topic == SCHEDULE_TOPIC
        code = self._levels.due(queue.queue_id + 1, entry.store_time) if delayed else entry.tags_code
        queue.append(log_offset, entry.size, code)

    def _skip(self, log_offset: int, entry: Entry, reason: str) -> None:
        self.report.skipped.append(Skipped(log_offset, log_offset + entry.size, reason))

    def origins(self, log: CommitLog) -> Iterator[int]:
        """The records of which others were made: those that are there, and that waited for just that."""
        for offset, entry in self._origins.items():
            if log.start <= offset < log.end and log.holds(offset):
                data, base = log.file(offset)
                origin = read_entry(data, offset - base, offset)
                if origin is None or origin is BLANK:
                    continue
                (message,) = decode_messages(log.read(offset, offset + origin.size), as_stored=True)
                if is_origin(message, entry.topic):
                    yield offset


def _has_room(queue: ConsumeQueue, wanted: int, log_offset: int) -> bool:
    """Whether the log has room before ``log_offset`` for the messages of the queue up to the offset ``wanted``."""
    return wanted - queue.max <= (log_offset - queue.log_end) // MIN_RECORD


def _name(queue: ConsumeQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic}"


def _starting_point(
    log: CommitLog, queues: Iterable[ConsumeQueue], checkpoint: Checkpoint, *, clean: bool, now: int
) -> int:
    queues = list(queues)
    candidates = [log.start]
    if not queues:
        # Somebody removed them: all of the log is read to make them again.
        return log.start
    if log.start <= checkpoint.mark <= log.filled:
        candidates.append(checkpoint.mark)
    if clean:
        # Nothing was cut off: the queues are as whole as the log, whoever wrote them.
        candidates += [end for queue in queues if (end := queue.log_end) <= log.filled]
    elif checkpoint.by_java and checkpoint.log_time <= now:
        # A page that is damaged passes for one by Java. Its times are hardly ever of the past.
        candidates += [start for start in log.file_starts if first_time(log, start) <= checkpoint.safe_time]
    return max(candidates)


def first_time(log: CommitLog, file_start: int) -> float:
    """When the first message of a log file was stored; where none is, never."""
    data, base = log.file(file_start)
    entry = read_entry(data, file_start - base, file_start)
    return float("inf") if entry is None or entry is BLANK else store_time(data[:_TIME_BYTES])
