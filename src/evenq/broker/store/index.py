"""The index of a store: messages by key, made from the commit log behind everybody's back.

No sender waits for it. :meth:`Index.advance` takes the next piece of the log; whoever looks for a key lets it catch
up first. The work on a piece, :meth:`Index.take`, may be done in another thread, and finding the keys of a large one in
another process. How far it came stands in its files, so that it goes on there after any end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.indexfile import ENTRIES, SLOTS, IndexFile, Prepared
from evenq.broker.store.keyfinder import KeyFinder, Place, Wanted, keys_at, keys_in
from evenq.broker.store.keys import Keys, key_hash
from evenq.broker.store.scan import BLANK, read_entry

__all__ = ["Index", "Piece", "Taken"]

log = logging.getLogger(__name__)

# How much of the log is taken at a time: about two milliseconds' work.
_PIECE = 512 * 1024
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
        piece = self.next(_PIECE)
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
