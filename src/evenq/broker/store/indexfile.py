"""One file of the index: a hash table from keys to places in the commit log, in RocketMQ's layout.

::

    header, 40 bytes    first time:8  last time:8  first offset:8  last offset:8  slots in use:4  count:4
    slots, 4 bytes      the number of the newest entry whose hash falls here, or 0
    entries, 20 bytes   hash:4  log offset:8  seconds since the first time:4  the next older entry of the slot:4

Entries are numbered from 1: the count begins there, and the place of entry 0 stays empty. They are written as they
come; the slots are kept in memory, and reach the file when it is closed. After a kill they are made again from the
entries, so that nothing is ever needed of the disk in the middle of the work but appending.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.keys import Keys

__all__ = ["ENTRIES", "SLOTS", "IndexFile", "Links", "Prepared", "prepared"]

SLOTS = 5_000_000
ENTRIES = 20_000_000

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_ENTRIES = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("older", ">i4")])
_SLOT = np.dtype(">i4")
_LATEST = 2**31 - 1

# slots that are written together: what a page of the disk holds
_PAGE = 4096 // _SLOT.itemsize
# entries that are read together when the slots are made again
_PIECE = 1 << 18


class Links(NamedTuple):
    """How entries, numbered from 0 on here, follow each other in their slots: ``older`` is the one before in the same
    slot, -1 for none. For each slot that one falls into, ``places``: the first such entry, and the last."""

    older: NDArray[np.int32]
    places: NDArray[np.int32]
    opens: NDArray[np.int64]
    closes: NDArray[np.int32]


class Prepared(NamedTuple):
    """Entries that lack nothing but their places in a file, with time and log offset of the first and the last one.

    ``end`` and ``blank`` are those of their keys.
    """

    entries: NDArray[np.void]
    links: Links
    first: tuple[int, int]
    last: tuple[int, int]
    end: int
    blank: bool


def prepared(keys: Keys, slots: int, base_time: int | None) -> Prepared:
    """Do for keys, of which there must be some, what can be done without the file. ``base_time`` is the file's; None
    for one that is empty.

    >>> keys = Keys(np.array([5, 13, 6]), np.array([100, 200, 300]), np.array([0, 1000, 2000]), end=400)
    >>> links = prepared(keys, 8, None).links
    >>> links.older.tolist(), links.places.tolist(), links.opens.tolist(), links.closes.tolist()
    ([-1, 0, -1], [5, 6], [0, 2], [1, 2])
    """
    times = keys.times
    base = int(times[0]) if base_time is None else base_time
    entries = np.zeros(len(keys), _ENTRIES)
    entries["hash"] = keys.hashes
    entries["offset"] = keys.offsets
    entries["seconds"] = np.clip((times - base) // 1000, 0, _LATEST)
    first, last = ((int(times[at]), int(keys.offsets[at])) for at in (0, -1))
    return Prepared(entries, _linked(keys.hashes % slots), first, last, keys.end, keys.blank)


def _linked(places: NDArray[np.int32]) -> Links:
    # entries of one slot side by side, in order: each follows the one before it
    order = np.argsort(places, kind="stable")
    by_place = places[order]
    opens = np.append(True, by_place[1:] != by_place[:-1])
    before = np.append(-1, order[:-1]).astype(np.int32)
    before[opens] = -1
    older = np.empty_like(before)
    older[order] = before
    closes = np.append(opens[1:], True)
    return Links(older, by_place[opens].astype(np.int32), order[opens], order[closes].astype(np.int32))


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
        for begin in range(1, self.count, _PIECE):
            count = min(_PIECE, self.count - begin)
            stored = os.pread(self._fd, count * _ENTRY.size, self._entries_at + begin * _ENTRY.size)
            places = np.frombuffer(stored, _ENTRIES)["hash"].astype(np.int32) % self._slot_count
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
