"""Whether records that a consume queue names are still what it says.

Damage in the log shows when its records are read at a start, but only behind the starting point. What is damaged before
it, or while the broker runs, is found here, when somebody reads the queue. A record whose size, magic number or log
offset is wrong cannot be decoded: a reader would ask for it again and again. So it counts as missing.
"""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import CommitLog
from evenq.broker.store.consumequeue import MISSING_SIZE, UNIT, ConsumeQueue
from evenq.protocol.recordform import MAGIC_V1, MAGIC_V2
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, MIN_RECORD
from evenq.protocol.windows import windows

__all__ = ["Damages", "are_intact"]

log = logging.getLogger(__name__)

_MAGICS = MAGIC_V1, MAGIC_V2
_USUAL = MAGIC_V1.to_bytes(4)
_HEAD = struct.Struct(f">iI{COMMIT_LOG_OFFSET_AT - 8}xq")
_HEADS = np.dtype(
    {
        "names": ["size", "magic", "position"],
        "formats": [">i4", ">u4", ">i8"],
        "offsets": [0, 4, COMMIT_LOG_OFFSET_AT],
        "itemsize": _HEAD.size,
    }
)

# Damaged places that were reported, and how many lines one read writes.
_REPORTED = 4096
_LINES = 5


def are_intact(body: bytes, units: NDArray[np.void]) -> bool:
    """Whether ``body`` holds the records of these units, one behind the other."""
    sizes = units["size"].tobytes()
    count = len(units)
    size = int.from_bytes(sizes[:4])
    if int.from_bytes(sizes[-4:]) < MIN_RECORD:
        return False
    if sizes == sizes[:4] * count:
        heads = np.ndarray((count,), _HEADS, body, strides=(size,))
    else:
        starts = np.zeros(count, np.int64)
        np.cumsum(units["size"][:-1], out=starts[1:])
        heads = windows(memoryview(body), _HEAD.size)[starts].view(_HEADS)
    return (
        heads["size"].tobytes() == sizes
        and heads["position"].tobytes() == units["position"].tobytes()
        and (heads["magic"].tobytes() == _USUAL * count or bool(np.isin(heads["magic"], _MAGICS).all()))
    )


class Damages:
    """Finds the damaged records of queues in ``log``, and reports each once."""

    def __init__(self, commit_log: CommitLog, directory: Path) -> None:
        self._log = commit_log
        self._directory = directory
        self._reported: OrderedDict[int, None] = OrderedDict()

    def find(self, queue: ConsumeQueue, offset: int, units: bytes) -> list[int]:
        """Which of the units from ``offset`` on are those of damaged records: their numbers. Missing ones are not."""
        places = [(position, size) for position, size, _ in UNIT.iter_unpack(units)]
        found = [number for number, place in enumerate(places) if not self._is_intact(*place)]
        self._report(queue, [(offset + number, places[number][0]) for number in found])
        return found

    def _is_intact(self, position: int, size: int) -> bool:
        if size == MISSING_SIZE:
            return True
        head = self._log.read(position, min(position + _HEAD.size, self._log.file_end(position)))
        if len(head) < _HEAD.size:
            return False
        own_size, magic, own_position = _HEAD.unpack(head)
        return bool(own_size == size and own_position == position and magic in _MAGICS)

    def _report(self, queue: ConsumeQueue, found: list[tuple[int, int]]) -> None:
        new = [place for place in found if place[1] not in self._reported]
        for offset, position in new[:_LINES]:
            log.warning(
                "%s: the message at offset %d of queue %d of %s is passed over: its record at %d of the log is damaged",
                self._directory,
                offset,
                queue.queue_id,
                queue.topic,
                position,
            )
        if len(new) > _LINES:
            log.warning(
                "%s: and %d more of queue %d of %s up to offset %d",
                self._directory,
                len(new) - _LINES,
                queue.queue_id,
                queue.topic,
                new[-1][0],
            )
        for _, position in new:
            self._reported[position] = None
        while len(self._reported) > _REPORTED:
            self._reported.popitem(last=False)
