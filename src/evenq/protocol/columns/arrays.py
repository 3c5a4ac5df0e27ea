"""Arrow arrays of what is in memory already. ``pyarrow.array`` would do as well, but loads pandas wherever it is
installed: a second of work for the first message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenq.errors import ArgumentError

__all__ = ["MOST", "bits", "evenly", "numbers", "repeated", "texts"]

# Arrow's string and binary columns count bytes in 31 bits.
MOST = 2**31 - 1
# Columns of one text are kept up to this many rows.
_KEPT = 1 << 15


def numbers(values: NDArray[Any]) -> pa.Array:
    """
    >>> numbers(np.arange(3, dtype=np.int32)).to_pylist()
    [0, 1, 2]
    """
    held = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(held.dtype), len(held), [None, pa.py_buffer(held)])


def bits(values: NDArray[np.bool_]) -> pa.Array:
    """
    >>> bits(np.array([True, False, True])).to_pylist()
    [True, False, True]
    """
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def texts(values: Sequence[str]) -> pa.Array:
    """
    >>> texts(["a", "", "été"]).to_pylist()
    ['a', '', 'été']
    """
    encoded = [value.encode() for value in values]
    bounds = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(encoded) + 1)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(encoded))]
    )


def repeated(text: str, count: int) -> pa.Array:
    """The same text in every row: mostly a part of a column that is there already.

    >>> repeated("a", 3).to_pylist()
    ['a', 'a', 'a']
    """
    return _column_of(text, _KEPT).slice(0, count) if count <= _KEPT else _column_of.__wrapped__(text, count)


@lru_cache(8)
def _column_of(text: str, count: int) -> pa.Array:
    value = text.encode()
    if count * len(value) > MOST:
        raise ArgumentError("bodies", f"{count} messages", "decode less than 2 GiB at once")
    return evenly(pa.string(), value * count, count, len(value))


def evenly(kind: pa.DataType, values: bytes | NDArray[Any], count: int, size: int) -> pa.Array:
    """So many texts or binaries of one size that lie end to end, at most ``MOST`` bytes.

    >>> evenly(pa.string(), b"abcd", 2, 2).to_pylist()
    ['ab', 'cd']
    """
    bounds = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bounds), pa.py_buffer(values)])
