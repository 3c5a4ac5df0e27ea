"""The records of a batch whose messages all have the same sizes: laid out in columns, not one by one.

Such batches are common: counters, ticks, rows of fixed width, what a program fills a template with. Others go through
:meth:`evenq.protocol.recordform.RecordForm.batch`, which makes the same of them.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

import numpy as np

from evenq.protocol.batch import BODY_AT, read_head
from evenq.protocol.recordform import BatchRecords, RecordForm
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, QUEUE_OFFSET_AT

__all__ = ["batch_records"]

# below so many messages the loop over them is as fast
_FEW = 8

_Fields = np.dtype[np.void]


def batch_records(form: RecordForm, data: bytes, queue_offset: int, log_offset: int) -> BatchRecords:
    """The records of a batch's messages, one behind the other; for errors see :meth:`RecordForm.batch`."""
    made = _even_records(form, data, queue_offset, log_offset) if len(data) > _FEW * BODY_AT else None
    return made or form.batch(data, queue_offset, log_offset)


def _even_records(form: RecordForm, data: bytes, queue_offset: int, log_offset: int) -> BatchRecords | None:
    """None where the messages differ in size or flag, or anything else is to be said about them."""
    size, flag, body_size = read_head(data)
    tail_size = size - BODY_AT - body_size
    if body_size < 0 or not 2 <= tail_size <= 2 + 0x7FFF or len(data) % size:
        return None
    count = len(data) // size
    if count < _FEW:
        return None
    given_form, made_form = _columns(body_size, tail_size, form.body_at, form.overhead)
    given = np.frombuffer(data, given_form)
    properties_size = tail_size - 2
    if (
        given["head"].tobytes() != data[:BODY_AT] * count
        or given["properties_size"].tobytes() != properties_size.to_bytes(2) * count
    ):
        return None
    blank = form.record(bytes(body_size), bytes(properties_size), 0, 0, flag=flag, crc=0)
    records = bytearray(blank * count)
    made = np.frombuffer(records, made_form)
    if body_size:
        bodies = given["body"]
        made["body"] = bodies
        made["crc"] = np.fromiter(map(crc32, bodies.tolist()), np.uint32, count) & 0x7FFFFFFF
    made["tail"] = given["tail"]
    made["queue_offset"] = np.arange(queue_offset, queue_offset + count)
    made["log_offset"] = np.arange(log_offset, log_offset + len(records), len(blank))
    has_zeros = given["tail"].tobytes().count(0) > properties_size.to_bytes(2).count(0) * count
    return BatchRecords(records, [len(blank)] * count, given["tail"].tolist, has_zeros)


@lru_cache(256)
def _columns(body_size: int, tail_size: int, body_at: int, overhead: int) -> tuple[_Fields, _Fields]:
    """The fields of a message in a batch, and those of its record that are its own."""
    tail_at = BODY_AT + body_size
    size = tail_at + tail_size
    given = {
        "head": (f"V{BODY_AT}", 0),
        "body": (f"V{body_size}", BODY_AT),
        "tail": (f"V{tail_size}", tail_at),
        "properties_size": ("V2", tail_at),
    }
    made_size = overhead + body_size + tail_size - 2
    made = {
        "crc": (">u4", 8),
        "queue_offset": (">i8", QUEUE_OFFSET_AT),
        "log_offset": (">i8", COMMIT_LOG_OFFSET_AT),
        "body": (f"V{body_size}", body_at),
        "tail": (f"V{tail_size}", made_size - tail_size),
    }
    return _fields(given, size), _fields(made, made_size)


def _fields(fields: dict[str, tuple[str, int]], size: int) -> _Fields:
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})
