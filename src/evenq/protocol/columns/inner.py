"""Batches that are one record each: the layout of the messages in them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenq.protocol.columns.cutting import Bytes, Ints
from evenq.protocol.columns.layout import Layout
from evenq.protocol.flags import SysFlag
from evenq.protocol.windows import windows

__all__ = ["unwrap"]

_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_COMPRESSED = int(SysFlag.COMPRESSED)
# What a message of a batch begins with, and the size of the shortest.
_HEAD = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")])
_LEAST = _HEAD.itemsize + 2
_size_at = struct.Struct(">i").unpack_from


def unwrap(layout: Layout, spans: Sequence[tuple[int, int]] | None) -> Layout | None:
    """The layout with the messages of batches instead of the batches; of each body those in its span of offsets only.

    None where the lengths in a batch do not fit together, or one is compressed as a whole.
    """
    batches = (layout.sys_flag & _BATCH) == _BATCH
    if (layout.sys_flag[batches] & _COMPRESSED).any():
        return None
    found: list[Ints] = []
    for row in np.flatnonzero(batches).tolist():
        starts = _starts(layout.data, int(layout.body_at[row]), int(layout.body_end[row]))
        if starts is None:
            return None
        found.append(starts)
    counts = np.ones(len(batches), np.int64)
    counts[batches] = [len(starts) for starts in found]
    # of each message the record that it is in, and which of its messages it is
    rows = np.repeat(np.arange(len(batches)), counts)
    offsets = layout.queue_offset[rows] + np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
    places = _places(layout, rows, batches[rows], np.concatenate([*found, np.empty(0, np.int64)]))
    if places is None:
        return None
    bodies = np.repeat(np.arange(len(layout.counts)), layout.counts)[rows]
    wanted: slice | np.ndarray[tuple[int], np.dtype[np.bool_]] = slice(None)
    if spans:
        lows, highs = np.array(spans, np.int64).T
        wanted = (offsets >= lows[bodies]) & (offsets < highs[bodies])
    rows = rows[wanted]
    body_at, body_end, properties_at, properties_end = (place[wanted] for place in places)
    return replace(
        layout,
        counts=np.bincount(bodies[wanted], minlength=len(layout.counts)).tolist(),
        queue_id=layout.queue_id[rows],
        queue_offset=offsets[wanted],
        sys_flag=layout.sys_flag[rows],
        born=layout.born[rows],
        stored=layout.stored[rows],
        reconsumed=layout.reconsumed[rows],
        id_bytes=layout.id_bytes[rows],
        id_length=layout.id_length[rows],
        body_at=body_at,
        body_end=body_end,
        topic_at=layout.topic_at[rows],
        topic_end=layout.topic_end[rows],
        properties_at=properties_at,
        properties_end=properties_end,
    )


def _starts(data: Bytes, at: int, end: int) -> Ints | None:
    """Where each message of a batch begins, by the sizes that they tell; None where these lead elsewhere."""
    if end - at >= _LEAST:
        (size,) = _size_at(data.data, at)
        if size >= _LEAST and (end - at) % size == 0:
            sizes = np.ndarray(((end - at) // size,), ">i4", data, at, (size,))
            if (sizes == size).all():
                return np.arange(at, end, size)
    starts: list[int] = []
    while at < end:
        (size,) = _size_at(data.data, at) if end - at >= _LEAST else (0,)
        if size < _LEAST or at + size > end:
            return None
        starts.append(at)
        at += size
    return np.array(starts, np.int64)


def _places(
    layout: Layout, rows: Ints, inner: np.ndarray[tuple[int], np.dtype[np.bool_]], starts: Ints
) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Where the bodies and the properties of all messages begin and end; ``starts`` are those of the ``inner`` ones."""
    body_at, body_end = layout.body_at[rows], layout.body_end[rows]
    properties_at, properties_end = layout.properties_at[rows], layout.properties_end[rows]
    if len(starts):
        head = windows(layout.data, _HEAD.itemsize)[starts].view(_HEAD)
        size, body_size = head["size"].astype(np.int64), head["body_size"].astype(np.int64)
        if not ((body_size >= 0) & (body_size <= size - _LEAST)).all():
            return None
        body_at[inner] = starts + _HEAD.itemsize
        tails = starts + _HEAD.itemsize + body_size
        body_end[inner] = tails
        properties_at[inner] = tails + 2
        properties_end[inner] = starts + size
        if not (tails + 2 + windows(layout.data, 2)[tails].view(">i2") == starts + size).all():
            return None
    return body_at, body_end, properties_at, properties_end
