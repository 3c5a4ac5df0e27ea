"""What to do about a place in the log where no whole record is.

If nothing but zeros follows, the log ends there. Otherwise something was damaged, and records behind it may be whole.
The log goes on at the first of these places that has a whole record. The record must give this place as its own, and
must not be more than an hour older than the last good one:

1. the end of the damaged record, by its size or by the sizes of its parts; the marker that ends a file will do, too;
2. the next place that an entry of a consume queue names;
3. the next place with the magic number of a record, behind the end of the damaged record, since a body may contain a
   record. If the two sizes of rule 1 differ, the end counts at which a record, whole or not, gives that place as its
   own; if this does not decide, the one by its own size.

A size counts only where something else confirms it (:func:`~evenq.broker.store.scan.sizes_at`): other bytes may have
taken the place of the record, and mean nothing.

Where there is none, records of any time count by the third rule, before the rest of the log is given up.

The bytes before it are copied to the directory ``damaged``. Then something takes their place that the Java broker and
evenq pass over: a record of a half message in a topic of its own, or the marker that fills the end of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.files import Files
from evenq.broker.store.scan import BLANK, read_entry, sizes_at
from evenq.protocol.flags import SysFlag
from evenq.protocol.recordform import MAGIC_V1, MAGIC_V2, RecordForm
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, MIN_RECORD

__all__ = ["fill", "is_marker", "next_whole", "save"]

_TOPIC = "rmq_sys_damaged"

# No record is shorter: its topic has at least one character.
_SHORTEST = MIN_RECORD + 1
_LARGEST_FILLER = 16 * 1024 * 1024
_MAGICS = MAGIC_V1.to_bytes(4), MAGIC_V2.to_bytes(4)
_HOST = "127.0.0.1:0"
_CHUNK = 1024 * 1024
# by how much clocks of a broker may have been put back
_OLDER_MS = 3_600_000


def next_whole(log: CommitLog, at: int, end: int, named: NDArray[np.int64], last_time: int) -> int | None:
    """The first place behind ``at``, where the log is damaged, at which it can be read again; None if there is none.

    ``end`` is the end of what is not zeros, ``named`` are places in order that consume queues name.
    """
    file_end = log.file_end(at)
    data, base = log.file(at)
    first = min(at + _SHORTEST, file_end)
    ends = [at + size for size in sizes_at(data, at - base, at) if first <= at + size <= file_end]
    for place in ends:
        if _is_whole(log, place, last_time, marker=True):
            return place
    for place in named[np.searchsorted(named, first) :].tolist():
        if place < end and _is_whole(log, place, last_time):
            return int(place)
    # Where the sizes differ, one of them is damaged: that counts at whose end another record says that it is there.
    behind = next((place for place in ends if _says_its_place(log, place)), ends[0] if ends else first)
    # Before everything behind is given up, times do not count: one may be damaged, or of a clock that was wrong.
    for oldest in (last_time, 0):
        for place in _magics(log, behind, end):
            if _is_whole(log, place, oldest):
                return place
    return None


def _is_whole(log: CommitLog, place: int, last_time: int, *, marker: bool = False) -> bool:
    if not log.holds(place):
        return False
    data, base = log.file(place)
    entry = read_entry(data, place - base, place)
    if entry is BLANK:
        return marker and is_marker(log, place)
    return entry is not None and not entry.doubtful and entry.store_time >= last_time - _OLDER_MS


def is_marker(log: CommitLog, place: int) -> bool:
    """Whether the marker that fills the rest of a file is there, as large as that is."""
    return log.read(place, place + 8) == log.marker(log.file_end(place) - place)


def _says_its_place(log: CommitLog, place: int) -> bool:
    """Whether a record begins there that need not be whole."""
    at = place + COMMIT_LOG_OFFSET_AT
    return log.holds(place) and at + 8 <= log.file_end(place) and log.read(at, at + 8) == place.to_bytes(8)


def _magics(log: CommitLog, start: int, end: int) -> Iterator[int]:
    """The places from ``start`` on where a record would be whose magic number is there."""
    while start < end:
        file_end = log.file_end(start)
        if log.holds(start):
            data, base = log.file(start)
            last = min(file_end, end) - base
            found = [data.find(magic, start - base + 4, last) for magic in _MAGICS]
            while at := min((place for place in found if place >= 0), default=0):
                yield base + at - 4
                found = [
                    data.find(magic, at + 1, last) if place == at else place
                    for magic, place in zip(_MAGICS, found, strict=True)
                ]
        start = file_end


def save(log: CommitLog, start: int, end: int, directory: Path, files: Files) -> Path:
    """Copy a part of the log to a file of its own, on the disk when this returns."""
    files.make_directories(directory)
    path = directory / f"{start}-{end - start}"
    number = 1
    while path.exists():
        number += 1
        path = directory / f"{start}-{end - start}.{number}"
    beside = path.with_name(f"{path.name}.tmp")
    descriptor = files.open(beside, create=True, empty=True)
    try:
        for at, chunk in _chunks(log, start, end):
            files.write(descriptor, chunk, at - start)
        files.sync(descriptor, beside)
    finally:
        files.close(descriptor)
    files.rename(beside, path)
    files.sync_names(path)
    return path


def _chunks(log: CommitLog, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    while start < end:
        stop = min(start + _CHUNK, end, log.file_end(start))
        if log.holds(start):
            yield start, log.read(start, stop)
        start = stop


def fill(log: CommitLog, start: int, end: int, store_time: int) -> None:
    """Let something take the place of damaged bytes that everybody passes over; it is on the disk then."""
    while start < end:
        file_end = log.file_end(start)
        if not log.holds(start):
            pass
        elif file_end <= end:
            log.overwrite(start, log.marker(file_end - start))
        else:
            _fill_with_records(log, start, end, store_time)
        start = file_end


def _fill_with_records(log: CommitLog, start: int, end: int, store_time: int) -> None:
    while start < end:
        size = end - start if end - start <= _LARGEST_FILLER else _LARGEST_FILLER - _SHORTEST
        log.overwrite(start, _filler(start, size, store_time))
        start += size


def _filler(log_offset: int, size: int, store_time: int) -> bytes:
    form = RecordForm(
        topic=_TOPIC[: size - MIN_RECORD],
        # in no queue
        queue_id=-1,
        born_timestamp=store_time,
        born_host=_HOST,
        store_timestamp=store_time,
        store_host=_HOST,
        sys_flag=int(SysFlag.PREPARED),
    )
    return form.record(bytes(size - form.overhead), b"", 0, log_offset)
