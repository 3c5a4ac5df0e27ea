"""Where everything is in a buffer of records: one numpy array per field, one element per record."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.errors import ProtocolError
from evenq.protocol.columns.cutting import Bytes, Ints
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import MAGIC_V1, MAGIC_V2, MIN_RECORD, split_records
from evenq.protocol.windows import windows

__all__ = ["Layout", "find_layout"]

# The fixed fields before the first host, those after the last one, and all of them where both hosts are IPv4.
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
_FIXED = np.dtype([("head", _HEAD), ("born_host", "V8"), ("stored", ">i8"), ("store_host", "u8"), ("tail", _TAIL)])

_SIZE = struct.Struct(">i")
_HOSTS_V6 = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of all records of a buffer; ``…_at`` and ``…_end`` are positions in it."""

    data: Bytes
    counts: list[int]  # how many records each of the joined bodies has
    flags: int  # the bits of ``sys_flag`` that any record has
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


class _Rest(NamedTuple):
    """The fields whose places depend on the hosts."""

    stored: Ints
    reconsumed: NDArray[np.int32]
    id_bytes: Bytes
    id_length: Ints
    body_at: Ints
    body_size: NDArray[np.int32]


def find_layout(bodies: Sequence[bytes]) -> Layout | None:
    """Find all fields of all records, or None where the lengths in a record do not fit together."""
    joined = b"".join(bodies)
    found = _even(joined, bodies) or _starts(bodies)
    if found is None:
        return None
    starts, counts = found
    data = np.frombuffer(joined, np.uint8)
    fixed = windows(data, _FIXED.itemsize)[starts].view(_FIXED)
    head = fixed["head"]
    ends = starts + head["size"]
    sys_flag = head["sys_flag"].astype(np.int32)
    flags = int(np.bitwise_or.reduce(sys_flag))
    rest = _behind_ipv6(data, starts, ends, head, sys_flag) if flags & _HOSTS_V6 else _usual(starts, fixed)
    if rest is None:
        return None

    body_at, body_end = rest.body_at, rest.body_at + rest.body_size
    magic = head["magic"]
    second: NDArray[np.bool_] | bool = False
    if not (magic == MAGIC_V1).all():
        second = magic == MAGIC_V2
        if not (second | (magic == MAGIC_V1)).all():
            return None
    if not ((rest.body_size >= 0) & (body_end <= ends - 3 - second)).all():
        return None
    shorts = windows(data, 2)
    topic_size: NDArray[np.int8] | NDArray[np.int16] = data[body_end].view(np.int8)
    if second is not False:
        topic_size = np.where(second, shorts[body_end].view(">i2"), topic_size)
    topic_at = body_end + 1 + second
    topic_end = topic_at + topic_size
    if not ((topic_size >= 0) & (topic_end <= ends - 2)).all():
        return None
    properties_at = topic_end + 2
    if not (properties_at + shorts[topic_end].view(">i2") == ends).all():
        return None

    return Layout(
        data=data,
        counts=counts,
        flags=flags,
        queue_id=head["queue_id"].astype(np.int32),
        queue_offset=head["queue_offset"].astype(np.int64),
        sys_flag=sys_flag,
        born=head["born"].astype(np.int64),
        stored=rest.stored,
        reconsumed=rest.reconsumed,
        id_bytes=rest.id_bytes,
        id_length=rest.id_length,
        body_at=body_at,
        body_end=body_end,
        topic_at=topic_at,
        topic_end=topic_end,
        properties_at=properties_at,
        properties_end=ends,
    )


def _usual(starts: Ints, fixed: NDArray[np.void]) -> _Rest:
    """All hosts are IPv4: every record has all fields at the same places."""
    tail = fixed["tail"]
    words = np.empty((len(starts), 2), np.uint64)
    words[:, 0] = fixed["store_host"]
    words[:, 1] = np.ascontiguousarray(fixed["head"]["log_offset"]).view(np.uint64)
    return _Rest(
        stored=fixed["stored"].astype(np.int64),
        reconsumed=tail["reconsumed"].astype(np.int32),
        id_bytes=words.view(np.uint8),
        id_length=np.full(len(starts), words.itemsize * 2),
        body_at=starts + _FIXED.itemsize,
        body_size=tail["body_size"].astype(np.int32),
    )


def _behind_ipv6(
    data: Bytes, starts: Ints, ends: Ints, head: NDArray[np.void], sys_flag: NDArray[np.int32]
) -> _Rest | None:
    """Some hosts are IPv6: each record for itself, if it is long enough for its hosts."""
    born_host = np.where(sys_flag & SysFlag.BORN_HOST_V6, 20, 8)
    store_host = np.where(sys_flag & SysFlag.STORE_HOST_V6, 20, 8)
    stored_at = starts + _HEAD.itemsize + born_host
    store_host_at = stored_at + 8
    tail_at = store_host_at + store_host
    body_at = tail_at + _TAIL.itemsize
    if not (body_at <= ends - (MIN_RECORD - _FIXED.itemsize)).all():
        return None
    tail = windows(data, _TAIL.itemsize)[tail_at].view(_TAIL)
    return _Rest(
        stored=windows(data, 8)[stored_at].view(">i8").astype(np.int64),
        reconsumed=tail["reconsumed"].astype(np.int32),
        id_bytes=_id_bytes(data, store_host_at, store_host, head["log_offset"]),
        id_length=store_host + 8,
        body_at=body_at,
        body_size=tail["body_size"].astype(np.int32),
    )


def _even(joined: bytes, bodies: Sequence[bytes]) -> tuple[Ints, list[int]] | None:
    """Where each record of the joined bodies begins, and how many each body has, if all records have one size, as they
    often do: seen at a glance, not followed one by one."""
    size = _one_size(joined)
    if not size or any(len(body) % size for body in bodies):
        return None
    return np.arange(0, len(joined), size), [len(body) // size for body in bodies]


def _one_size(records: bytes) -> int:
    """The size of each of these records; 0 unless all have the same."""
    if len(records) < MIN_RECORD:
        return 0
    size: int = _SIZE.unpack_from(records)[0]
    if size < MIN_RECORD or len(records) % size:
        return 0
    sizes = np.ndarray((len(records) // size,), ">i4", records, strides=(size,))
    return size if (sizes == size).all() else 0


def _starts(bodies: Sequence[bytes]) -> tuple[Ints, list[int]] | None:
    """The same for any records; None where the lengths do not fit together."""
    starts: list[Ints] = []
    begin = 0
    for body in bodies:
        size = _one_size(body)
        try:
            places = np.arange(0, len(body), size) if size else np.array(split_records(body), np.int64)
        except ProtocolError:
            return None
        starts.append(places + begin)
        begin += len(body)
    return np.concatenate(starts) if starts else np.empty(0, np.int64), list(map(len, starts))


def _id_bytes(data: Bytes, at: Ints, host: Ints, log_offset: NDArray[np.void]) -> Bytes:
    """The host and the log offset side by side, in rows as wide as the widest host needs."""
    offset = np.ascontiguousarray(log_offset).view(np.uint8).reshape(-1, 8)
    sizes: list[int] = np.unique(host).tolist()
    width = max(sizes)
    rows = np.empty((len(at), width + 8), np.uint8)
    rows[:, :width] = windows(data, width)[at].view(np.uint8).reshape(-1, width)
    for size in sizes:
        those = slice(None) if len(sizes) == 1 else host == size
        rows[those, size : size + 8] = offset[those]
    return rows
