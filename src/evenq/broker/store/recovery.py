"""Finding the true end of a store after a start: a torn tail is cut, consume queues are made whole again.

Everything before a certain log offset, the starting point, is known to be on the disk, in the log and in the consume
queues. From there on the log alone is trusted, record by record, and the consume queues are filled from it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from evenq.broker.store.checkpoint import Checkpoint
from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.consumequeue import ConsumeQueue
from evenq.broker.store.levels import DEFAULT_LEVELS, SCHEDULE_TOPIC, DelayLevels
from evenq.broker.store.scan import BLANK, Entry, read_entry, store_time
from evenq.protocol.flags import SysFlag
from evenq.protocol.names import PATH_LIMIT, topic_error

__all__ = ["Recovered", "first_time", "is_consumable", "recover", "scan"]

# enough of a record to hold its store time, whatever its hosts are
_TIME_BYTES = 80


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where the log begins again, how much of it was read to know that, the time of the last message found, and the
    log offsets of the records of which those that were read were made (see :mod:`evenq.broker.store.lineage`)."""

    end: int
    scanned: int
    last_time: int
    sources: frozenset[int]


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
    levels: DelayLevels = DEFAULT_LEVELS,
) -> Recovered:
    """Cut the log and the queues to what is whole and consistent. ``find`` gives a queue, new ones too."""
    queues = list(queues)
    start = _starting_point(log, queues, checkpoint, clean)
    for queue in queues:
        queue.cut(start)
    end, last_time = start, checkpoint.log_time
    sources = set()
    for offset, entry in scan(log, start):
        end = offset + entry.size
        last_time = entry.store_time
        if entry.source is not None:
            sources.add(entry.source)
        if is_consumable(entry.sys_flag) and not topic_error(entry.topic, PATH_LIMIT) and entry.queue_id >= 0:
            _dispatch(find(entry.topic, entry.queue_id), offset, entry, levels)
    log.cut(end)
    for queue in queues:
        queue.trim(log.start)
    return Recovered(end, end - start, last_time, frozenset(sources))


def scan(log: CommitLog, start: int) -> Iterator[tuple[int, Entry]]:
    """The whole records from ``start`` on, with their log offsets, up to the first that is not whole."""
    offset = start
    while offset < log.filled:
        data, base = log.file(offset)
        entry = read_entry(data, offset - base, offset)
        if entry is None:
            return
        if entry is BLANK:
            offset = base + log.file_size
        else:
            yield offset, entry
            offset += entry.size


def _starting_point(log: CommitLog, queues: list[ConsumeQueue], checkpoint: Checkpoint, clean: bool) -> int:
    candidates = [log.start]
    if not queues:
        # Somebody removed them: all of the log is read to make them again.
        return log.start
    if log.start <= checkpoint.mark <= log.filled:
        candidates.append(checkpoint.mark)
    if clean:
        # Nothing was cut off: the queues are as whole as the log, whoever wrote them.
        candidates += [end for queue in queues if (end := queue.log_end) <= log.filled]
    else:
        candidates += [start for start in log.file_starts if first_time(log, start) <= checkpoint.safe_time]
    return max(candidates)


def first_time(log: CommitLog, file_start: int) -> float:
    """When the first message of a log file was stored; where none is, never."""
    data, base = log.file(file_start)
    entry = read_entry(data, file_start - base, file_start)
    return float("inf") if entry is None else store_time(data[:_TIME_BYTES])


def _dispatch(queue: ConsumeQueue, log_offset: int, entry: Entry, levels: DelayLevels) -> None:
    if entry.queue_offset > queue.max:
        # What was between is no longer there, neither in the queue nor in the log.
        queue.begin_at(entry.queue_offset)
    if entry.queue_offset == queue.max:
        delayed = queue.topic == SCHEDULE_TOPIC
        code = levels.due(queue.queue_id + 1, entry.store_time) if delayed else entry.tags_code
        queue.append(log_offset, entry.size, code)
