"""Cutting many pieces out of one buffer into an Arrow column, without a Python object for any of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenq.errors import ArgumentError
from evenq.protocol.columns.arrays import MOST, evenly, numbers
from evenq.protocol.windows import windows

__all__ = ["Bytes", "Ints", "cut", "hex_column", "is_ascii", "strings", "words"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


def cut(
    data: Bytes, begins: Ints, ends: Ints, *, extra: list[bytes] | None = None, use: Ints | None = None
) -> pa.Array:
    """The pieces ``data[begins[i]:ends[i]]``, which must not overlap and be in order, as a binary column.

    The offsets of an Arrow column are where its values begin and end. Begins and ends in turn therefore make a column
    of pieces and gaps over the buffer as it is; taking every second value copies the pieces out, in C++. Where all are
    of one size, numpy does it in half the time.

    ``extra`` are values from elsewhere; ``use[i]`` is the index of the one to put in place of piece i, or -1.
    """
    count = len(begins)
    if len(data) + sum(map(len, extra or ())) > MOST:
        raise ArgumentError("bodies", f"{len(data)} bytes", "decode less than 2 GiB at once")
    if count and not extra:
        sizes = ends - begins
        size = int(sizes[0])
        if size > 0 and (sizes == size).all():
            return evenly(pa.binary(), windows(data, size)[begins], count, size)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = begins
    bounds[1::2] = ends
    pieces = _binary(bounds, pa.py_buffer(data.data))
    wanted = np.arange(0, 2 * count, 2)
    if extra and use is not None:
        wanted = np.where(use < 0, wanted, len(pieces) + use)
        pieces = pa.concat_arrays([pieces, pa.array(extra, pa.binary())])
    return pc.take(pieces, numbers(wanted), boundscheck=False)


def _binary(bounds: NDArray[np.int32], values: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), max(len(bounds) - 1, 0), [None, pa.py_buffer(bounds), values])


def words(data: Bytes, begins: Ints, size: int) -> NDArray[Any]:
    """The pieces of one size that begin there, as values that can be compared."""
    word = np.dtype(f"u{size}") if size in (2, 4, 8) else np.dtype((np.void, size))
    return windows(data, size)[begins].view(word)


def is_ascii(data: Bytes) -> bool:
    """Whether no byte needs to be looked at to know that all of it is UTF-8."""
    even = len(data) // 8 * 8
    high = np.bitwise_or.reduce(data[:even].view(np.uint64)) & np.uint64(0x8080808080808080)
    return not high and not (data[even:] & 0x80).any()


def strings(column: pa.Array, *, present: NDArray[np.bool_] | None = None, ascii_only: bool = False) -> pa.Array:
    """A binary column as text, null where not ``present``. What is not UTF-8 is replaced, as Java replaces it; that is
    not looked for where the column is known to be ``ascii_only``."""
    validity = None
    if present is not None and not present.all():
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    _, offsets, values = column.buffers()
    text = pa.Array.from_buffers(pa.string(), len(column), [validity, offsets, values])
    if ascii_only:
        return text
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        found: list[bytes | None] = column.to_pylist()
        shown = present if present is not None else np.ones(len(column), np.bool_)
        replaced = [_replace(value) if there else None for value, there in zip(found, shown, strict=True)]
        return pa.array(replaced, pa.string())
    return text


def _replace(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def hex_column(data: Bytes, lengths: Any) -> pa.Array:
    """Rows of bytes, of which the first ``lengths[i]`` count, as upper-case hexadecimal text."""
    count, width = data.shape
    digits = _HEX.take(data).view(np.uint8).reshape(-1)
    if len(digits) <= MOST and (lengths == width).all():
        # nothing to cut off, nothing that is not ASCII
        return evenly(pa.string(), digits, count, 2 * width)
    begins = np.arange(count) * (2 * width)
    return strings(cut(digits, begins, begins + 2 * lengths))
