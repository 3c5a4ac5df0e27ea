"""Finding the keys of much of the log in a process of its own.

It is the larger part of making the index, and one thread of Python has enough to do with the messages that come. The
process reads the file of the log itself: it is told where, and gives back entries for the index that only lack their
places in its file. It is started with the first large piece, ends when none has come for a while, and with this process
however that ends.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, NamedTuple, cast

from evenq.broker.store.index_keys import Ints, Keys, Prepared, find_keys, keys_of, prepared

__all__ = ["Found", "KeyFinder", "Place", "Wanted", "found_at", "keys_at", "keys_in"]

log = logging.getLogger(__name__)

# Seconds without work after which the process ends.
_IDLE = 30.0
# Seconds that it has for that.
_PATIENCE = 5.0

Found = Prepared | Keys


class Place(NamedTuple):
    """Records in a file: from ``begin`` on, ``size`` bytes, which are at ``base`` in the log. ``starts`` are where the
    records begin; None where that is to be found out."""

    path: str
    begin: int
    size: int
    base: int
    starts: Ints | None


class Wanted(NamedTuple):
    """Entries for an index file with so many slots, whose times are told from ``base_time``, of the records there."""

    place: Place
    slots: int
    base_time: int | None


def keys_in(data: bytes, base: int, starts: Ints | None) -> Keys:
    return find_keys(data, base) if starts is None else keys_of(data, starts, base)


def keys_at(place: Place) -> Keys:
    """The keys of the records there."""
    file = os.open(place.path, os.O_RDONLY)
    try:
        data = os.pread(file, place.size, place.begin)
    finally:
        os.close(file)
    return keys_in(data, place.base, place.starts)


def found_at(wanted: Wanted) -> Found:
    """What is to be put into the file; only the keys' end where there are none."""
    keys = keys_at(wanted.place)
    return prepared(keys, wanted.slots, wanted.base_time) if len(keys) else keys


class KeyFinder:
    """The process, as long as there is work for it. Where there can be none, the work is done here."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-P", "-m", __name__)) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._used = 0.0
        self._can_be = bool(command[0])

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def find(self, wanted: Wanted) -> Found:
        """What is to be put into the file. It waits for that, so it is for a thread of its own. One call at a time."""
        if not self._can_be:
            return found_at(wanted)
        try:
            found = self._ask(wanted)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            log.warning("the index is made without a process of its own: %s ended: %r", self._command[-1], error)
            self._can_be = False
            self.close()
            return found_at(wanted)
        if isinstance(found, OSError):
            raise found
        return found

    def _ask(self, wanted: Wanted) -> Found | OSError:
        if self._process is None:
            # what a terminal tells a group of processes to do is not for this one
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        self._used = time.monotonic()
        into, out = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        pickle.dump(wanted, into, protocol=pickle.HIGHEST_PROTOCOL)
        into.flush()
        return cast("Found | OSError", pickle.load(out))

    def rest(self) -> None:
        """End the process if there was nothing to do for a while."""
        if self._process is not None and time.monotonic() - self._used > _IDLE:
            self.close()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(_PATIENCE)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # what it was about to be told is of no use any more
                with suppress(BrokenPipeError):
                    pipe.close()


def main() -> None:
    """Answer what is asked until nobody is there any more."""
    into, out = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            wanted: Wanted = pickle.load(into)
        except EOFError:
            return
        found: Found | OSError
        try:
            found = found_at(wanted)
        except OSError as error:
            found = error
        pickle.dump(found, out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()


if __name__ == "__main__":
    main()
