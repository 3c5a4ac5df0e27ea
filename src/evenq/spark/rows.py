"""Rows of a frame as messages on the wire: columns in, one column of batch entries out, no object per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenq.errors import ArgumentError
from evenq.model import Property
from evenq.protocol.compression import DEFAULT_THRESHOLD, compress
from evenq.spark.checksums import checksums
from evenq.spark.marks import PROPERTY, Origin

__all__ = ["Alone", "Packed", "RowPacker", "numbered"]

# What brokers and producers write into the properties themselves. A frame that was read from a topic has them in its
# column properties, and they must not take effect again.
_NOT_THE_USERS = (
    PROPERTY, Property.UNIQUE_KEY, Property.WAIT, Property.DELAY, Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC, Property.REAL_TOPIC, Property.REAL_QUEUE_ID, Property.HALF, Property.PRODUCER_GROUP,
    Property.RECONSUME_TIMES, Property.RETRY_TOPIC, Property.ORIGIN_ID, Property.CLUSTER, "MSG_REGION", "TRACE_ON",
    "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS",
)  # fmt: skip

# Columns that are properties on the wire.
_TEXTS = {"keys": Property.KEYS, "tags": Property.TAGS, "sharding_key": Property.SHARDING_KEY}

# An entry of a batch: sizes and flags, the value, the size of the properties, the properties.
_HEAD = 20
_SHORT = 2
_PROPERTIES_LIMIT = 0x7FFF

# Spark says of what its lists hold that it is never null, and then Arrow does not know how to join it.
_LISTS = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class Alone:
    """A message that cannot be part of a batch: delayed, or so large that it is compressed."""

    body: bytes
    properties: str
    sys_flag: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows for the wire: an entry for each, and those that must go alone, by position."""

    entries: pa.Array
    alone: Mapping[int, Alone]


class RowPacker:
    """Packs the rows of one task, in the order in which they come."""

    def __init__(self, origin: Origin, max_message_size: int) -> None:
        self._origin = origin
        self._most = max_message_size
        # how many rows there were so far
        self.row = 0

    def pack(self, batch: pa.RecordBatch) -> Packed:
        """The next rows."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        bodies, sizes = self._bodies(columns["value"])
        own = _own(columns)
        delays = _delays(columns)
        marking, numbers = numbered(self._origin, batch, self.row)
        mark = [marking.prefix, numbers.cast(pa.string()), ".", _checksums(bodies, own)]
        texts = _joined([*own, *_identity(columns.get("unique_key"), mark), *delays])
        self.row += len(batch)
        single = sizes > DEFAULT_THRESHOLD
        if delays:
            single |= np.asarray(pc.greater(pc.binary_length(_joined(delays)), 0))
        alone = {at: _alone(bodies[at].as_py(), texts[at].as_py()) for at in np.flatnonzero(single).tolist()}
        return Packed(_entries(bodies, sizes, texts), alone)

    def _bodies(self, column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
        sizes = pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()).to_numpy()
        wrong = (sizes == 0) | (sizes > self._most)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ArgumentError(
                f"value of row {self.row + at} in partition {self._origin.partition}",
                f"{sizes[at]} bytes" if column[at].is_valid else None,
                f"a message has 1 to {self._most} bytes: leave others out, or raise maxMessageSize here and on brokers",
            )
        return column.cast(pa.binary()), sizes


def numbered(origin: Origin, batch: pa.RecordBatch, first: int) -> tuple[Origin, pa.Array]:
    """Where rows come from, for their marks, and the number of each; ``first`` is how many the task had before.

    A frame that numbers its rows itself may divide them otherwise among tasks when it is written again.
    """
    if "row_number" not in batch.schema.names:
        return origin, pa.array(np.arange(first, first + len(batch)))
    numbers = batch.column("row_number").cast(pa.int64())
    if numbers.null_count:
        raise ArgumentError("column row_number", None, "number every row, each of an epoch with a number of its own")
    return replace(origin, partition=0), numbers


def _identity(given: pa.Array | None, mark: list[Any]) -> list[Any]:
    """What tells who the rows are. Their mark is their unique key, unless the frame gives them others."""
    if given is None:
        return [f"{Property.UNIQUE_KEY}\x01", *mark, "\x02"]
    marks = _joined(mark)
    unique = pc.if_else(pc.equal(pc.fill_null(_plain("unique_key", given), ""), ""), marks, given)
    return [f"{Property.UNIQUE_KEY}\x01", unique, f"\x02{PROPERTY}\x01", marks, "\x02"]


def _joined(parts: list[Any]) -> pa.Array:
    """Columns and constants end to end, row by row; what is null adds nothing."""
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")


def _own(columns: Mapping[str, pa.Array]) -> list[pa.Array]:
    """The user's own properties of each row on the wire, in several columns."""
    found = []
    if "properties" in columns:
        left_out = [*_NOT_THE_USERS, *(wire for name, wire in _TEXTS.items() if name in columns)]
        found.append(_of_maps(columns["properties"], left_out))
    for name, wire in _TEXTS.items():
        if name in columns:
            texts = _plain(name, _words(columns[name]))
            found.append(_pairs(pa.scalar(wire), pc.if_else(pc.equal(texts, ""), None, texts)))
    return found


def _words(column: pa.Array) -> pa.Array:
    """Texts; those of a list with spaces between."""
    return pc.binary_join(column.cast(_LISTS), " ") if pa.types.is_list(column.type) else column


def _pairs(names: pa.Array | pa.Scalar, values: pa.Array) -> pa.Array:
    """Properties on the wire; null where the value is."""
    return pc.binary_join_element_wise(names, "\x01", values, "\x02", "")


def _of_maps(column: pa.Array, left_out: list[str]) -> pa.Array:
    # a column that was cut out of a longer one still has all names and values of that
    bounds = column.offsets.to_numpy()
    names, values = (
        _plain("properties", child.slice(bounds[0], bounds[-1] - bounds[0])) for child in (column.keys, column.items)
    )
    dropped = pc.or_(pc.is_in(names, pa.array(left_out)), pc.equal(pc.fill_null(values, ""), ""))
    pairs = pc.if_else(dropped, "", _pairs(names, pc.fill_null(values, "")))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds - bounds[0], pa.int32()), pairs), "")


def _plain(name: str, column: pa.Array) -> pa.Array:
    """A column of texts, none of which may hold what separates properties on the wire."""
    if pc.any(pc.match_substring_regex(column, "[\x01\x02]")).as_py():
        raise ArgumentError(f"column {name}", "a text with U+0001 or U+0002", "leave these characters out")
    return column


def _delays(columns: Mapping[str, pa.Array]) -> list[pa.Array]:
    """The properties that delay each row, null where nothing does."""
    found = []
    if "delay_level" in columns:
        levels = columns["delay_level"].cast(pa.int64())
        found.append(
            _pairs(pa.scalar(Property.DELAY), pc.if_else(pc.greater(levels, 0), levels, None).cast(pa.string()))
        )
    if "deliver_at" in columns:
        times = columns["deliver_at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        found.append(_pairs(pa.scalar(Property.TIMER_DELIVER_MS), times.cast(pa.string())))
    return found


def _checksums(bodies: pa.Array, own: list[pa.Array]) -> pa.Array:
    """Of each row what it says, in eight hexadecimal digits."""
    found = checksums([bodies, _joined(own).cast(pa.binary())] if own else [bodies])
    return _fixed(found.astype(">u4").tobytes().hex().encode(), 8).cast(pa.binary()).cast(pa.string())


def _entries(bodies: pa.Array, sizes: NDArray[np.int64], texts: pa.Array) -> pa.Array:
    lengths = pc.binary_length(texts).to_numpy()
    if len(lengths) and lengths.max() > _PROPERTIES_LIMIT:
        raise ArgumentError("properties", f"{lengths.max()} bytes", f"all together may have {_PROPERTIES_LIMIT} bytes")
    heads = np.zeros((len(bodies), _HEAD // 4), ">i4")
    heads[:, 0] = _HEAD + sizes + _SHORT + lengths
    heads[:, 4] = sizes
    return pc.binary_join_element_wise(
        _fixed(heads.tobytes(), _HEAD).cast(pa.binary()),
        bodies,
        _fixed(lengths.astype(">i2").tobytes(), _SHORT).cast(pa.binary()),
        texts.cast(pa.binary()),
        pa.scalar(b"", pa.binary()),
    )


def _fixed(data: bytes, width: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)])


def _alone(body: bytes, text: str) -> Alone:
    if len(body) <= DEFAULT_THRESHOLD:
        return Alone(body, text, 0)
    packed, flag = compress(body, "ZLIB")
    return Alone(packed, text, flag)
