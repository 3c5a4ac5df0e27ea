"""Where everything is in a buffer of records: one numpy array per field, one element per record."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenq.errors import ProtocolError
from evenq.protocol.columns.cutting import Bytes, Ints
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import MAGIC_V1, MAGIC_V2, MIN_RECORD, split_records
from evenq.protocol.windows import windows

__all__ = ["Layout", "find_layout"]

# The fixed fields before the first host, and those after the last one; between them lies the time of storing.
_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("log_offset", "V8"),
        ("sys_flag", ">i4"),
        ("born", ">i8"),
    ]
)
_TAIL = np.dtype([("reconsumed", ">i4"), ("prepared", ">i8"), ("body_size", ">i4")])

_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of all records of a buffer; ``…_at`` and ``…_end`` are positions in it."""

    data: Bytes
    counts: list[int]  # how many records each of the joined bodies has
    queue_id: NDArray[np.int32]
    queue_offset: Ints
    sys_flag: NDArray[np.int32]
    born: Ints
    stored: Ints
    reconsumed: NDArray[np.int32]
    id_bytes: Bytes  # rows of the store host and the place in the commit log: what a message id is made of
    id_length: Ints
    body_at: Ints
    body_end: Ints
    topic_at: Ints
    topic_end: Ints
    properties_at: Ints
    properties_end: Ints


def find_layout(bodies: Sequence[bytes]) -> Layout | None:
    """Find all fields of all records, or None where the lengths in a record do not fit together."""
    joined = b"".join(bodies)
    found = _even(joined, bodies) or _starts(bodies)
    if found is None:
        return None
    starts, counts = found
    data = np.frombuffer(joined, np.uint8)
    head = windows(data, _HEAD.itemsize)[starts].view(_HEAD)
    sys_flag = head["sys_flag"].astype(np.int32)
    ends = starts + head["size"]

    born_host = np.where(sys_flag & SysFlag.BORN_HOST_V6, 20, 8)
    store_host = np.where(sys_flag & SysFlag.STORE_HOST_V6, 20, 8)
    stored_at = starts + _HEAD.itemsize + born_host
    store_host_at = stored_at + 8
    tail_at = store_host_at + store_host
    body_at = tail_at + _TAIL.itemsize
    if not (body_at <= ends - (MIN_RECORD - 88)).all():
        return None
    tail = windows(data, _TAIL.itemsize)[tail_at].view(_TAIL)
    body_end = body_at + tail["body_size"]

    second = head["magic"] == MAGIC_V2
    fits = (second | (head["magic"] == MAGIC_V1)) & (tail["body_size"] >= 0) & (body_end <= ends - 3 - second)
    if not fits.all():
        return None
    shorts = windows(data, 2)
    topic_size = np.where(second, shorts[body_end].view(">i2"), data[body_end].view(np.int8))
    topic_at = body_end + 1 + second
    topic_end = topic_at + topic_size
    if not ((topic_size >= 0) & (topic_end <= ends - 2)).all():
        return None
    properties_at = topic_end + 2
    if not (properties_at + shorts[topic_end].view(">i2") == ends).all():
        return None

    id_bytes, id_length = _id_bytes(data, store_host_at, store_host, head["log_offset"])
    return Layout(
        data=data,
        counts=counts,
        queue_id=head["queue_id"].astype(np.int32),
        queue_offset=head["queue_offset"].astype(np.int64),
        sys_flag=sys_flag,
        born=head["born"].astype(np.int64),
        stored=windows(data, 8)[stored_at].view(">i8").astype(np.int64),
        reconsumed=tail["reconsumed"].astype(np.int32),
        id_bytes=id_bytes,
        id_length=id_length,
        body_at=body_at,
        body_end=body_end,
        topic_at=topic_at,
        topic_end=topic_end,
        properties_at=properties_at,
        properties_end=ends,
    )


def _even(joined: bytes, bodies: Sequence[bytes]) -> tuple[Ints, list[int]] | None:
    """Where each record of the joined bodies begins, and how many each body has, if all records have one size, as they
    often do: seen at a glance, not followed one by one."""
    if len(joined) < MIN_RECORD:
        return None
    (size,) = _SIZE.unpack_from(joined)
    if size < MIN_RECORD or any(len(body) % size for body in bodies):
        return None
    sizes = np.ndarray((len(joined) // size,), ">i4", joined, strides=(size,))
    if not (sizes == size).all():
        return None
    return np.arange(0, len(joined), size), [len(body) // size for body in bodies]


def _starts(bodies: Sequence[bytes]) -> tuple[Ints, list[int]] | None:
    """The same for any records; None where the lengths do not fit together."""
    starts: list[Ints] = []
    begin = 0
    for body in bodies:
        try:
            starts.append(np.array(split_records(body), np.int64) + begin)
        except ProtocolError:
            return None
        begin += len(body)
    return np.concatenate(starts) if starts else np.empty(0, np.int64), list(map(len, starts))


def _id_bytes(data: Bytes, at: Ints, host: Ints, log_offset: NDArray[np.void]) -> tuple[Bytes, Ints]:
    """The host and the log offset side by side, in rows as wide as the widest host needs."""
    offset = np.ascontiguousarray(log_offset)
    if (host == 8).all():
        words = np.empty((len(at), 2), np.uint64)
        words[:, 0] = windows(data, 8)[at].view(np.uint64)
        words[:, 1] = offset.view(np.uint64)
        return words.view(np.uint8), host + 8
    sizes: list[int] = np.unique(host).tolist()
    width = max(sizes)
    rows = np.empty((len(at), width + 8), np.uint8)
    rows[:, :width] = windows(data, width)[at].view(np.uint8).reshape(-1, width)
    for size in sizes:
        those = slice(None) if len(sizes) == 1 else host == size
        rows[those, size : size + 8] = offset.view(np.uint8).reshape(-1, 8)[those]
    return rows, host + 8
