"""Choosing what a read gives, by the units of a consume queue alone."""

from __future__ import annotations

import struct
from collections.abc import Collection
from operator import add
from typing import NamedTuple

from evenq.broker.store.consumequeue import UNIT

__all__ = ["Selection", "select"]

# Units that are looked at together: as many as clients usually ask for.
_TOGETHER = 32
_BLOCK = struct.Struct(">" + UNIT.format.lstrip(">") * _TOGETHER)


class Selection(NamedTuple):
    """Pieces of the commit log from start to end, how many messages they are, and how many units were looked at."""

    pieces: list[tuple[int, int]]
    found: int
    seen: int


def select(units: bytes, count: int, max_bytes: int, codes: Collection[int] | None = None) -> Selection:
    """The first ``count`` messages, at most ``max_bytes`` of them but one at least; with ``codes`` only those whose tag
    has one of these hashes. Messages that lie one behind the other in the log may be one piece.

    >>> units = UNIT.pack(100, 20, 7) + UNIT.pack(120, 30, 8) + UNIT.pack(200, 10, 7)
    >>> select(units, 2, 1000)
    Selection(pieces=[(100, 150)], found=2, seen=2)
    >>> select(units, 2, 1000, {7})
    Selection(pieces=[(100, 120), (200, 210)], found=2, seen=3)
    """
    pieces: list[tuple[int, int]] = []
    found = total = 0
    if codes is None:
        found, total = _select_blocks(units[: count * UNIT.size], max_bytes, pieces)
    seen = found
    start = end = -1
    for position, size, code in UNIT.iter_unpack(units[found * UNIT.size :]):
        if codes is None or code in codes:
            if found == count or (found and total + size > max_bytes):
                break
            if position != end:
                if end >= 0:
                    pieces.append((start, end))
                start = position
            end = position + size
            found += 1
            total += size
        seen += 1
    if end >= 0:
        pieces.append((start, end))
    return Selection(pieces, found, seen)


def _select_blocks(units: bytes, max_bytes: int, pieces: list[tuple[int, int]]) -> tuple[int, int]:
    """Choose whole blocks while they fit, onto ``pieces``; how many messages those are, and how many bytes."""
    found = total = 0
    for block in _BLOCK.iter_unpack(units[: len(units) // _BLOCK.size * _BLOCK.size]):
        positions, sizes = block[::3], block[1::3]
        size = sum(sizes)
        if total + size > max_bytes:
            break
        # messages never overlap: if they have the room of all of them together, there is nothing between them
        if positions[-1] + sizes[-1] - positions[0] == size:
            pieces.append((positions[0], positions[0] + size))
        else:
            pieces += zip(positions, map(add, positions, sizes), strict=True)
        found += _TOGETHER
        total += size
    return found, total
