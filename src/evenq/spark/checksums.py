"""Checksums of whole columns: what each row says in 32 bits, without a call for each. Pure; needs no Spark.

A short row is a sum of its words, each times a number that belongs to its place, and of its length; the upper half of
that is its checksum (multilinear hashing). A long one has its CRC-32. So it depends on nothing but the row, and two
different rows share one by chance only, once in 2**32 pairs.
"""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["checksums"]

Checksums = NDArray[np.uint32]

_WORD = 4
_HALF = np.uint64(32)
# Rows of more bytes are long: little is gained for them, and the others would have to be filled up to their size.
_SHORT = 512


def checksums(columns: list[pa.Array]) -> Checksums:
    """The checksum of each row of some binary columns of the same length, without nulls.

    >>> one = checksums([pa.array([b"a", b"b", b"a"])])
    >>> bool(one[0] == one[2]), bool(one[0] == one[1])
    (True, False)
    """
    found = _sums(columns[0])
    for column in columns[1:]:
        found = (found ^ (found >> _HALF)) * _FACTORS[0] + _sums(column)
    return (found >> _HALF).astype(np.uint32)


def _sums(column: pa.Array) -> NDArray[np.uint64]:
    sizes = pc.binary_length(column).to_numpy().astype(np.int64)
    short = sizes <= _SHORT
    if short.all():
        return _of_short(column, sizes)
    found = np.empty(len(column), np.uint64)
    found[short] = _of_short(column.filter(pa.array(short)), sizes[short])
    long = column.filter(pa.array(~short)).to_pylist()
    found[~short] = np.array(list(map(zlib.crc32, long)), np.uint64) << _HALF
    return found


def _of_short(column: pa.Array, sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The sums of rows, all of which are filled up with zeros to the size of the largest, in whole words."""
    width = -(-int(sizes.max(initial=0)) // _WORD) * _WORD
    if (sizes != width).any():
        column = pc.binary_join_element_wise(column, _zeros(width - sizes), b"")
    if width == 0:
        return sizes.astype(np.uint64)
    _, offsets, values = column.buffers()
    start = int(np.frombuffer(offsets, np.int32)[column.offset])
    words = np.frombuffer(values, "<u4", len(column) * width // _WORD, start).reshape(len(column), -1)
    total: NDArray[np.uint64] = words.astype(np.uint64) @ _FACTORS[1 : width // _WORD + 1]
    total += sizes.astype(np.uint64) * _FACTORS[0]
    return total


def _zeros(sizes: NDArray[np.int64]) -> pa.Array:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(bytes(int(ends[-1])))]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _made(count: int) -> NDArray[np.uint64]:
    """Odd numbers without a pattern, the same for ever, since checksums are stored: SplitMix64."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)


_FACTORS = _made(1 + _SHORT // _WORD)
