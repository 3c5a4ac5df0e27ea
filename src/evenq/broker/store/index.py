"""The index of a store: messages by key, made from the commit log behind everybody's back.

No sender waits for it. :meth:`Index.advance` takes the next piece of the log; whoever looks for a key lets it catch
up first. The work on a piece, :meth:`Index.take`, may be done in another thread, and finding the keys of a large one in
another process. How far it came stands in its files, so that it goes on there after any end.

Each file is a hash table from keys to places in the commit log, in RocketMQ's layout.

::

    header, 40 bytes    first time:8  last time:8  first offset:8  last offset:8  slots in use:4  count:4
    slots, 4 bytes      the number of the newest entry whose hash falls here, or 0
    entries, 20 bytes   hash:4  log offset:8  seconds since the first time:4  the next older entry of the slot:4

Entries are numbered from 1: the count begins there, and the place of entry 0 stays empty. They are written as they
come; the slots are kept in memory, and reach the file when it is closed. After a kill they are made again from the
entries, so that nothing is ever needed of the disk in the middle of the work but appending.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.index_keys import ENTRY_FIELDS, Keys, Prepared, key_hash, prepared
from evenq.broker.store.index_worker import KeyFinder, Place, Wanted, keys_at, keys_in
from evenq.broker.store.scan import BLANK, read_entry

__all__ = ["ENTRIES", "SLOTS", "Index", "IndexFile", "Piece", "Taken"]

log = logging.getLogger(__name__)

SLOTS = 5_000_000
ENTRIES = 20_000_000

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_SLOT = np.dtype(">i4")

# slots that are written together: what a page of the disk holds
_PAGE = 4096 // _SLOT.itemsize
# entries that are read together when the slots are made again
_ENTRIES_AT_ONCE = 1 << 18


class IndexFile:
    """A file named by the time at which it was begun. ``stale`` slots are those of a file that was not closed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root:
    ...     file = IndexFile(Path(root) / "20260101000000000", slots=8, entries=100)
    ...     taken = file.add(Keys(np.array([5, 13]), np.array([4096, 8192]), np.array([0, 1000]), end=9000))
    ...     taken, list(file.find(13, 0, 1000)), list(file.find(21, 0, 1000))
    (2, [8192], [])
    """

    def __init__(self, path: Path, *, slots: int = SLOTS, entries: int = ENTRIES, stale: bool = False) -> None:
        self.path = path
        self._slot_count = slots
        self._capacity = entries
        self._stale = stale
        self._entries_at = _HEADER.size + slots * _SLOT.itemsize
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._fd, self.size_of(slots, entries))
        header: tuple[int, ...] = _HEADER.unpack(os.pread(self._fd, _HEADER.size, 0))
        self.first_time, self.last_time, self.first_offset, self.last_offset, self._used, count = header
        self.count = max(1, count)
        self._saved = _HEADER.pack(*header)
        # loaded with the first key that is looked for or added
        self._slots: NDArray[np.int32] | None = None
        self._changed_pages = np.zeros(-(-slots // _PAGE), np.bool_)

    @staticmethod
    def size_of(slots: int, entries: int) -> int:
        return _HEADER.size + slots * _SLOT.itemsize + entries * _ENTRY.size

    @property
    def is_empty(self) -> bool:
        return self.count <= 1

    @property
    def room(self) -> int:
        """How many entries the file still takes."""
        return self._capacity - self.count

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether a message of the file may have been stored between two times."""
        return not self.is_empty and self.first_time <= end and self.last_time >= begin

    def add(self, keys: Keys) -> int:
        """Add as many of the keys as there is room for, but all of a message or none; how many that were."""
        taken = _whole_messages(keys, self.room)
        if taken:
            self.put(prepared(keys.part(0, taken), self._slot_count, self.base_time))
        return taken

    @property
    def base_time(self) -> int | None:
        """What times are told from; None while there is no entry."""
        return None if self.is_empty else self.first_time

    def put(self, new: Prepared) -> None:
        """Add entries that were prepared for this file, with its slots and its time; there must be room for them."""
        if self.is_empty:
            self.first_time, self.first_offset = new.first
        slots, entries, links = self._load(), new.entries, new.links
        held = slots[links.places]
        # numbers within the piece become those of the file
        older = np.where(links.older < 0, 0, links.older + self.count)
        older[links.opens] = held
        entries["older"] = older
        # if the disk does not take them, nothing has happened
        self._write(entries.data.cast("B"), self._entries_at + self.count * _ENTRY.size)
        slots[links.places] = links.closes + self.count
        self._used += int((held == 0).sum())
        self._changed_pages[links.places // _PAGE] = True
        self.count += len(entries)
        self.last_time, self.last_offset = new.last

    def find(self, wanted: int, begin: int, end: int) -> Iterator[int]:
        """The log offsets of messages with a key of this hash, stored between two times, newest first.

        Other keys may have the same hash, and times are only held to the second: look at the messages.
        """
        number = int(self._load()[wanted % self._slot_count])
        while 0 < number < self.count:
            entry = os.pread(self._fd, _ENTRY.size, self._entries_at + number * _ENTRY.size)
            found, offset, seconds, older = _ENTRY.unpack(entry)
            time = self.first_time + seconds * 1000
            if found == wanted and begin <= time + 999 and time <= end:
                yield offset
            if time + 999 < begin or older >= number:
                return
            number = older

    def cut(self, log_offset: int) -> None:
        """Forget what is said of messages at ``log_offset`` and behind it."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < log_offset:
                low = middle + 1
            else:
                high = middle
        if low < self.count:
            self.count = low
            self._forget_slots()
            _, self.last_offset, seconds, _ = self._entry(low - 1) if low > 1 else (0, 0, 0, 0)
            self.last_time = self.first_time + seconds * 1000

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        hashed, offset, seconds, older = _ENTRY.unpack(
            os.pread(self._fd, _ENTRY.size, self._entries_at + number * _ENTRY.size)
        )
        return hashed, offset, seconds, older

    def _write(self, data: memoryview, at: int) -> None:
        while data:
            written = os.pwrite(self._fd, data, at)
            data, at = data[written:], at + written

    def _forget_slots(self) -> None:
        """Let the slots be made again from the entries."""
        self._stale = True
        self._slots = None

    def mend(self) -> None:
        """Make stale slots again, which takes a second for a full file. May run in another thread, before any use."""
        if self._stale:
            self._load()

    def _load(self) -> NDArray[np.int32]:
        if self._slots is None:
            self._slots = np.zeros(self._slot_count, np.int32)
            if self._stale:
                self._make_slots(self._slots)
            elif not self.is_empty:
                stored = os.pread(self._fd, self._slot_count * _SLOT.itemsize, _HEADER.size)
                held = np.frombuffer(stored, _SLOT)
                self._slots[:] = np.where((held > 0) & (held < self.count), held, 0)
        return self._slots

    def _make_slots(self, slots: NDArray[np.int32]) -> None:
        for begin in range(1, self.count, _ENTRIES_AT_ONCE):
            count = min(_ENTRIES_AT_ONCE, self.count - begin)
            stored = os.pread(self._fd, count * _ENTRY.size, self._entries_at + begin * _ENTRY.size)
            places = np.frombuffer(stored, ENTRY_FIELDS)["hash"].astype(np.int32) % self._slot_count
            # of entries with the same place the last one stays
            slots[places] = np.arange(begin, begin + count, dtype=np.int32)
        self._used = int(np.count_nonzero(slots))
        self._changed_pages[:] = True

    def header(self) -> bytes:
        """What says how far the file is filled. Written behind the entries, it never speaks of one that is missing."""
        return _HEADER.pack(
            self.first_time, self.last_time, self.first_offset, self.last_offset, self._used, self.count
        )

    def save(self, header: bytes) -> None:
        """Bring the entries to the disk, then the header that was true of them. May run in another thread."""
        if header != self._saved:
            os.fdatasync(self._fd)
            os.pwrite(self._fd, header, 0)
            self._saved = header

    def close(self) -> None:
        """Write the slots too, and leave the file as the Java broker leaves it."""
        if self._slots is not None:
            for page in np.flatnonzero(self._changed_pages).tolist():
                part = self._slots[page * _PAGE : (page + 1) * _PAGE]
                self._write(part.astype(_SLOT).data.cast("B"), _HEADER.size + page * _PAGE * _SLOT.itemsize)
        self.save(self.header())
        os.fdatasync(self._fd)
        os.close(self._fd)

    def abandon(self) -> None:
        """Let go of the file as it is."""
        os.close(self._fd)


def _whole_messages(keys: Keys, room: int) -> int:
    """How many of the keys fit into ``room`` without cutting a message in two."""
    if len(keys) <= room:
        return len(keys)
    while room and keys.offsets[room] == keys.offsets[room - 1]:
        room -= 1
    return room


# How much of the log is taken at a time: about two milliseconds' work.
_PIECE_BYTES = 512 * 1024
# From here on it pays to let another process find the keys.
_APART = 1024 * 1024


class Piece(NamedTuple):
    """Bytes of the log at a place, where in them records begin (None: to be found out), and where the next such piece
    would begin if no record were there. ``data`` is None where another process is to read them."""

    at: int
    size: int
    starts: NDArray[np.int64] | None
    data: bytes | None
    end: int = 0


class Taken(NamedTuple):
    """How far a piece could be read, and whether the rest of the log's file is empty."""

    end: int
    blank: bool


class Index:
    """The files of one directory, oldest first, and ``position``: what of the log before it is in them.

    ``clean`` says whether the store was closed the last time: if not, only the entries of the last files are trusted.
    """

    def __init__(
        self,
        directory: Path,
        commit_log: CommitLog,
        *,
        clock: Callable[[], float],
        clean: bool = True,
        slots: int = SLOTS,
        entries: int = ENTRIES,
    ) -> None:
        self._directory = directory
        self._log = commit_log
        self._clock = clock
        self._shape = slots, entries
        self._files = [
            IndexFile(path, slots=slots, entries=entries, stale=not clean) for path in self._paths(slots, entries)
        ]
        # files that were filled up by the last piece, and what the next checkpoint saves of which files
        self._filled: list[IndexFile] = []
        self._unsaved: dict[IndexFile, bytes] = {}
        self._finder = KeyFinder()
        self.position = self._resume()

    def _paths(self, slots: int, entries: int) -> Iterator[Path]:
        size = IndexFile.size_of(slots, entries)
        for path in sorted(path for path in self._directory.glob("*") if path.name.isdigit()):
            if path.stat().st_size in (0, size):
                yield path
            else:
                log.warning("%s is left out: it has %d bytes and not %d", path, path.stat().st_size, size)

    def _resume(self) -> int:
        """Drop what the log does not hold (any more), and find out where to go on."""
        for file in list(self._files):
            if file.last_offset >= self._log.end:
                file.cut(self._log.end)
            if file.is_empty:
                self._drop(file)
        self.trim()
        if not self._files:
            return self._log.start
        last = self._files[-1].last_offset
        if last < self._log.start or not self._log.holds(last):
            return self._readable(max(last, self._log.start))
        data, base = self._log.file(last)
        entry = read_entry(data, last - base, last)
        return last if entry is None or entry is BLANK else last + entry.size

    def mend(self) -> None:
        """Do what a kill made necessary; may run in another thread, before any use."""
        for file in self._files[-1:]:
            file.mend()

    # -- writing

    @property
    def behind(self) -> int:
        """How many bytes of the log are still to be taken."""
        return self._log.end - self.position

    def advance(self) -> bool:
        """Take the next piece of the log; whether there is more of it."""
        piece = self.next(_PIECE_BYTES)
        self.done(piece, self.take(piece))
        return self.behind > 0

    def next(self, most: int) -> Piece:
        """The piece of the log that comes next, of about ``most`` bytes, or of one message that is larger."""
        self.position = position = self._readable(max(self.position, self._log.start))
        sizes = self._log.recent.take(position, most)
        if sizes is not None:
            ends = np.cumsum(np.array(sizes), dtype=np.int64)
            return self._piece(position, int(ends[-1]), np.append(0, ends[:-1]))
        file_end = self._log.file_end(position)
        end = min(file_end, self._log.end, self._log.recent.begin or file_end)
        first = int.from_bytes(self._log.read(position, min(position + 4, end)), "big", signed=True)
        return self._piece(position, min(max(most, first), end - position), None, end)

    def _readable(self, position: int) -> int:
        """The place from which on the log can be read: the next file where this one is missing."""
        while position < self._log.end and not self._log.holds(position):
            position = self._log.file_end(position)
        return position

    def _piece(self, at: int, size: int, starts: NDArray[np.int64] | None, end: int = 0) -> Piece:
        if size < _APART:
            return Piece(at, size, starts, self._log.read(at, at + size), end)
        return Piece(at, size, starts, None, end)

    def take(self, piece: Piece) -> Taken:
        """Put the keys of a piece into the files. May run in another thread, while nothing is looked for."""
        if piece.data is not None:
            keys = keys_in(piece.data, piece.at, piece.starts)
        else:
            path, begin = self._log.place(piece.at)
            place = Place(str(path), begin, piece.size, piece.at, piece.starts)
            if not self._files:
                self._begin_file()
            file = self._files[-1]
            found = self._finder.find(Wanted(place, self._shape[0], file.base_time))
            if isinstance(found, Prepared) and len(found.entries) <= file.room:
                file.put(found)
                return Taken(found.end, found.blank)
            # none at all, or too many for what room there is
            keys = found if isinstance(found, Keys) else keys_at(place)
        self._add(keys)
        return Taken(keys.end, keys.blank)

    def done(self, piece: Piece, taken: Taken) -> None:
        """Note that a piece is in the files."""
        if taken.end > piece.at:
            self.position = taken.end
        else:
            if not taken.blank:
                log.error(
                    "no message is at %d of the log, where one should be: none up to %d is indexed",
                    taken.end,
                    piece.end,
                )
            self.position = piece.end
        self._unsaved.update((file, file.header()) for file in [*self._filled, *self._files[-1:]])
        self._filled = []

    def _add(self, keys: Keys) -> None:
        done = self._files[-1].add(keys) if self._files else 0
        while done < len(keys):
            self._begin_file()
            done += self._files[-1].add(keys.part(done, len(keys)))

    def _begin_file(self) -> None:
        self._filled += self._files[-1:]
        self._directory.mkdir(parents=True, exist_ok=True)
        slots, entries = self._shape
        self._files.append(IndexFile(self._new_path(), slots=slots, entries=entries))

    def _new_path(self) -> Path:
        now = datetime.fromtimestamp(self._clock())
        name = int(f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}")
        # two files may be filled within a millisecond only in a test, but the last one must sort last
        if self._files:
            name = max(name, int(self._files[-1].path.name) + 1)
        return self._directory / f"{name:017d}"

    def saver(self) -> Callable[[], None]:
        """For a checkpoint: the function that brings what is there now to the disk. It may run in another thread."""
        unsaved, self._unsaved = self._unsaved, {}

        def save() -> None:
            for file, header in unsaved.items():
                file.save(header)

        return save

    def trim(self) -> None:
        """Remove files that only speak of messages which the log no longer holds; the last one stays."""
        for file in self._files[:-1]:
            if file.last_offset >= self._log.start:
                return
            self._drop(file)

    def _drop(self, file: IndexFile) -> None:
        self._files.remove(file)
        self._unsaved.pop(file, None)
        file.abandon()
        file.path.unlink()

    def rest(self) -> None:
        """Keep no process for which there is nothing to do."""
        self._finder.rest()

    def close(self) -> None:
        self._finder.close()
        for file in self._files:
            file.close()
        self._files = []

    # -- reading

    def find(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """The log offsets of messages that may have the key and may have been stored between two times in
        milliseconds, newest first."""
        wanted = key_hash(topic, key)
        for file in reversed(self._files):
            if file.overlaps(begin, end):
                yield from file.find(wanted, begin, end)

    @property
    def last(self) -> tuple[int, int]:
        """Place and time of the newest message that is in the index; zeros where none is."""
        return (self._files[-1].last_offset, self._files[-1].last_time) if self._files else (0, 0)
