"""Columnar decode: the answers of many pulls straight to one Arrow record batch, no Python object per message.

The chain of record sizes is followed one by one; everything after that is a few numpy and Arrow calls per batch. The
only messages looked at singly are those with a compressed body. Needs numpy and pyarrow: import it on use only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenq.errors import ArgumentError, ProtocolError, RecordError
from evenq.model import Property
from evenq.protocol.columns.arrays import bits, numbers, repeated, texts
from evenq.protocol.columns.cutting import Ints, cut, hex_column, strings, words
from evenq.protocol.columns.inner import unwrap
from evenq.protocol.columns.layout import Layout, find_layout
from evenq.protocol.columns.pairs import find_pairs
from evenq.protocol.columns.tables import find_table
from evenq.protocol.compression import MAX_UNPACKED, decompress
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import decode_messages
from evenq.protocol.schema import SCHEMA, SCHEMA_WITH_PROPERTIES, schema
from evenq.protocol.view import MessageView

__all__ = ["SCHEMA", "SCHEMA_WITH_PROPERTIES", "decode_columns", "decode_many", "schema"]

_ALL = (-(2**63), 2**63)
_LATEST = (2**63 - 1) // 1000
_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_COMPRESSED = int(SysFlag.COMPRESSED)


def decode_columns(
    body: bytes,
    *,
    broker: str = "",
    include_properties: bool = False,
    poisoned: list[RecordError] | None = None,
) -> pa.RecordBatch:
    """Read the body of one pull's answer. See :func:`decode_many`, which is better for many small ones."""
    return decode_many([body], brokers=[broker], include_properties=include_properties, poisoned=poisoned)


def decode_many(
    bodies: Sequence[bytes],
    *,
    brokers: Sequence[str],
    spans: Sequence[tuple[int, int]] | None = None,
    include_properties: bool = False,
    property_columns: Sequence[str] = (),
    poisoned: list[RecordError] | None = None,
) -> pa.RecordBatch:
    """Read the bodies of many pulls' answers, each from its broker, into one batch, in order.

    Row by row it holds what :func:`evenq.protocol.decode_messages` gives, and errors are the same, but checksums are
    not looked at: a message that cannot be decompressed raises a RecordError, or goes to ``poisoned`` and is left out.
    ``spans`` are the offsets that are wanted of each body: a batch that is one record may reach beyond them.
    """
    if len(brokers) != len(bodies):
        raise ArgumentError("brokers", brokers, f"give the name of a broker for each of the {len(bodies)} bodies")
    layout = find_layout(bodies)
    if layout is not None and layout.flags & _BATCH == _BATCH:
        layout = unwrap(layout, spans)
    if layout is None:
        # what is broken, the object decoder reports best
        messages = [
            message
            for body, broker, (start, stop) in zip(bodies, brokers, spans or [_ALL] * len(bodies), strict=True)
            for message in decode_messages(body, broker=broker, check_crc=False, poisoned=poisoned)
            if start <= message.queue_offset < stop
        ]
        return _from_messages(messages, include_properties, property_columns)
    return _from_layout(layout, brokers, include_properties, property_columns, poisoned)


def _from_layout(
    layout: Layout,
    brokers: Sequence[str],
    include_properties: bool,
    property_columns: Sequence[str],
    poisoned: list[RecordError] | None,
) -> pa.RecordBatch:
    value, unreadable = _values(layout, poisoned)
    properties = cut(layout.data, layout.properties_at, layout.properties_end)
    _, offsets, text = properties.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(properties) + 1).astype(np.int64)
    wire = np.frombuffer(text, np.uint8, int(bounds[-1])) if text else np.empty(0, np.uint8)
    pairs = find_table(wire, bounds) or find_pairs(wire, bounds)
    columns = [
        _topics(layout),
        _brokers(brokers, layout.counts),
        numbers(layout.queue_id),
        numbers(layout.queue_offset),
        _times(layout.stored),
        _times(layout.born),
        pairs.column(Property.KEYS.encode()),
        pairs.column(Property.TAGS.encode()),
        value,
        hex_column(layout.id_bytes, layout.id_length),
        pairs.column(Property.UNIQUE_KEY.encode()),
        numbers(layout.reconsumed),
    ]
    if include_properties:
        columns.append(pairs.maps())
    columns += [pairs.column(name.encode()) for name in property_columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema(include_properties, property_columns))
    if unreadable:
        batch = batch.filter(bits(np.isin(np.arange(len(batch)), unreadable, invert=True)))
    return batch


def _topics(layout: Layout) -> pa.Array:
    data, begins, ends = layout.data, layout.topic_at, layout.topic_end
    if len(begins):
        first = data[begins[0] : ends[0]]
        if len(first) and (ends - begins == len(first)).all():
            names = words(data, begins, len(first))
            if (names == names[:1]).all():
                return repeated(first.tobytes().decode(errors="replace"), len(begins))
    # messages of one batch share theirs
    begins, first_rows, rows = np.unique(begins, return_index=True, return_inverse=True)
    return strings(cut(data, begins, ends[first_rows])).take(numbers(rows))


def _brokers(brokers: Sequence[str], counts: Sequence[int]) -> pa.Array:
    if len(set(brokers)) == 1:
        return repeated(brokers[0], sum(counts))
    return texts(brokers).take(numbers(np.repeat(np.arange(len(brokers)), counts)))


def _values(layout: Layout, poisoned: list[RecordError] | None) -> tuple[pa.Array, list[int]]:
    """The bodies, and the rows of those that cannot be decompressed."""
    if not layout.flags & _COMPRESSED:
        return cut(layout.data, layout.body_at, layout.body_end), []
    packed = np.flatnonzero(layout.sys_flag & _COMPRESSED)
    unpacked: list[bytes] = []
    unreadable: list[int] = []
    room = MAX_UNPACKED
    for row in packed.tolist():
        body = layout.data[layout.body_at[row] : layout.body_end[row]].tobytes()
        try:
            unpacked.append(decompress(body, int(layout.sys_flag[row])))
        except ProtocolError as reason:
            topic = layout.data[layout.topic_at[row] : layout.topic_end[row]].tobytes().decode(errors="replace")
            error = RecordError(topic, int(layout.queue_id[row]), int(layout.queue_offset[row]), str(reason))
            if poisoned is None:
                raise error from None
            poisoned.append(error)
            unpacked.append(b"")
            unreadable.append(row)
        room -= len(unpacked[-1])
        if room < 0:
            raise ProtocolError(
                f"the bodies of {len(packed)} compressed messages become more than {MAX_UNPACKED} bytes"
            )
    use: Ints = np.full(len(layout.body_at), -1, np.int64)
    use[packed] = np.arange(len(packed))
    return cut(layout.data, layout.body_at, layout.body_end, extra=unpacked, use=use), unreadable


def _times(milliseconds: Ints | list[int]) -> pa.Array:
    # a time that microseconds cannot hold is damage; it must not become some other time by overflow
    held = np.clip(np.asarray(milliseconds, np.int64), -_LATEST, _LATEST)
    return numbers(held * 1000).view(pa.timestamp("us", "UTC"))


def _from_messages(
    messages: Sequence[MessageView], include_properties: bool, property_columns: Sequence[str]
) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "topic": [message.topic for message in messages],
        "broker": [message.broker for message in messages],
        "queue_id": [message.queue_id for message in messages],
        "offset": [message.queue_offset for message in messages],
        "timestamp": _times([message.store_timestamp for message in messages]),
        "born_timestamp": _times([message.born_timestamp for message in messages]),
        "keys": [message.properties.get(Property.KEYS) for message in messages],
        "tags": [message.tags for message in messages],
        "value": [message.body for message in messages],
        "msg_id": [message.msg_id for message in messages],
        "unique_key": [message.unique_key for message in messages],
        "reconsume_times": [message.reconsume_times for message in messages],
    }
    if include_properties:
        columns["properties"] = [list(message.properties.items()) for message in messages]
    columns |= {name: [message.properties.get(name) for message in messages] for name in property_columns}
    return pa.RecordBatch.from_pydict(columns, schema=schema(include_properties, property_columns))
