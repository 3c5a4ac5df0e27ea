"""Choosing what a read gives, by the units of a consume queue alone."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.consumequeue import MISSING_SIZE, UNIT

__all__ = ["Selection", "select"]

# Units that are looked at together: as many as clients usually ask for.
_TOGETHER = 32
# their positions and sizes
_BLOCK = struct.Struct(">" + "qi8x" * _TOGETHER)
_BLOCK_SIZE = _BLOCK.size


class Selection(NamedTuple):
    """Pieces of the commit log by position and size, how many messages they are, and how many units were looked at."""

    pieces: list[tuple[int, int]]
    found: int
    seen: int

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the pieces begin, and where they end."""
        starts, sizes = np.array(self.pieces, np.int64).T
        return starts, starts + sizes


def select(units: bytes, count: int, max_bytes: int, codes: Collection[int] | None = None) -> Selection:
    """The first ``count`` messages, at most ``max_bytes`` of them but one at least; with ``codes`` only those whose tag
    has one of these hashes. Messages that lie one behind the other in the log may be one piece.

    Units of missing messages are passed over with ``codes``, and without them the first one is the end: what is found
    has offsets without a gap then.

    >>> units = UNIT.pack(100, 20, 7) + UNIT.pack(120, 30, 8) + UNIT.pack(200, 10, 7)
    >>> select(units, 2, 1000)
    Selection(pieces=[(100, 50)], found=2, seen=2)
    >>> select(units, 2, 1000, {7})
    Selection(pieces=[(100, 20), (200, 10)], found=2, seen=3)
    """
    pieces: list[tuple[int, int]] = []
    found = total = 0
    # a block with a missing message never has room then
    max_bytes = min(max_bytes, MISSING_SIZE - 1)
    if codes is None:
        found, total = _select_blocks(units, count, max_bytes, pieces)
        if found == count or found * UNIT.size == len(units):
            return Selection(pieces, found, found)
    seen = found
    start = end = -1
    for position, size, code in UNIT.iter_unpack(units[found * UNIT.size :]):
        if size == MISSING_SIZE:
            if codes is None:
                break
        elif codes is None or code in codes:
            if found == count or (found and total + size > max_bytes):
                break
            if position != end:
                if end >= 0:
                    pieces.append((start, end - start))
                start = position
            end = position + size
            found += 1
            total += size
        seen += 1
    if end >= 0:
        pieces.append((start, end - start))
    return Selection(pieces, found, seen)


def _select_blocks(units: bytes, count: int, max_bytes: int, pieces: list[tuple[int, int]]) -> tuple[int, int]:
    """Choose whole blocks while they fit, onto ``pieces``; how many messages those are, and how many bytes."""
    found = total = 0
    for at in range(0, min(count * UNIT.size, len(units)) - _BLOCK_SIZE + 1, _BLOCK_SIZE):
        block = _BLOCK.unpack_from(units, at)
        positions, sizes = block[::2], block[1::2]
        size = sum(sizes)
        if total + size > max_bytes:
            break
        # messages never overlap: if they have the room of all of them together, there is nothing between them
        if positions[-1] + sizes[-1] - positions[0] == size:
            pieces.append((positions[0], size))
        else:
            pieces += zip(positions, sizes, strict=True)
        found += _TOGETHER
        total += size
    return found, total
