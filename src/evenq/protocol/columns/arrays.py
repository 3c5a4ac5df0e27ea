"""Arrow arrays of what is in memory already. ``pyarrow.array`` would do as well, but loads pandas wherever it is
installed: a second of work for the first message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["bits", "numbers", "texts"]


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
