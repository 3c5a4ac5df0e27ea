"""What is laid out in columns is what the loop over messages makes."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol import evenbatch
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.evenbatch import batch_records
from evenq.protocol.recordform import BatchRecords, RecordForm
from tests.protocol.cases import ints
from tests.protocol.test_recordform import forms

places = st.integers(0, 1 << 40)


@st.composite
def even_batches(draw: st.DrawFn) -> list[BatchEntry]:
    body, properties, flag = draw(st.integers(0, 20)), draw(st.integers(0, 20)), draw(ints)
    letters = st.text("a\x01\x02", min_size=properties, max_size=properties)
    entries = st.builds(BatchEntry, st.binary(min_size=body, max_size=body), letters, st.just(flag))
    return draw(st.lists(entries, min_size=1, max_size=30))


def outcome(made: BatchRecords) -> tuple[bytes, list[int], list[bytes]]:
    return bytes(made.records), made.sizes, made.tails()


def tried(
    make: Callable[[RecordForm, bytes, int, int], BatchRecords], form: RecordForm, data: bytes
) -> tuple[object, ...]:
    """What comes of it, or how it is refused."""
    try:
        return outcome(make(form, data, 0, 0))
    except (ArgumentError, ProtocolError) as error:
        return type(error), str(error)


@given(forms, even_batches(), places, places)
def test_an_even_batch_gives_the_records_of_its_messages(
    form: RecordForm, entries: list[BatchEntry], queue_offset: int, log_offset: int
) -> None:
    data = encode_batch(entries)
    made = batch_records(form, data, queue_offset, log_offset)
    assert outcome(made) == outcome(form.batch(data, queue_offset, log_offset))


def test_messages_without_bodies_are_laid_out_in_columns_too() -> None:
    form = RecordForm(
        topic="t", queue_id=0, born_timestamp=0, born_host="1.1.1.1:1", store_timestamp=0, store_host="1.1.1.1:1"
    )
    data = encode_batch([BatchEntry(b"", "KEYS\x01k\x02")] * 20)
    made = evenbatch._even_records(form, data, 5, 700)
    assert made is not None
    assert outcome(made) == outcome(form.batch(data, 5, 700))


@given(forms, even_batches(), st.data())
def test_a_damaged_one_is_refused_where_the_loop_refuses_it(
    form: RecordForm, entries: list[BatchEntry], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(entries))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert tried(batch_records, form, bytes(damaged)) == tried(RecordForm.batch, form, bytes(damaged))


@pytest.mark.parametrize(
    ("last", "in_columns"),
    [
        (BatchEntry(b"xy", "KEYS\x01k9\x02"), True),
        (BatchEntry(b"xyz", "KEYS\x01k9\x02"), False),
        (BatchEntry(b"xyz", "KEYS\x01k\x02"), False),
        (BatchEntry(b"xy", "KEYS\x01k9\x02", flag=1), False),
    ],
)
def test_only_messages_of_one_shape_are_laid_out_in_columns(
    last: BatchEntry, in_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = RecordForm(
        topic="t", queue_id=0, born_timestamp=0, born_host="1.1.1.1:1", store_timestamp=0, store_host="1.1.1.1:1"
    )
    data = encode_batch([*(BatchEntry(b"ab", f"KEYS\x01k{n}\x02") for n in range(9)), last])
    expected = outcome(form.batch(data, 5, 700))
    asked: list[bool] = []
    columns = evenbatch._even_records

    def watched(form: RecordForm, data: bytes, queue_offset: int, log_offset: int) -> BatchRecords | None:
        made = columns(form, data, queue_offset, log_offset)
        asked.append(made is not None)
        return made

    monkeypatch.setattr(evenbatch, "_even_records", watched)
    assert outcome(batch_records(form, data, 5, 700)) == expected
    assert asked == [in_columns]


@pytest.mark.parametrize("size", [0x7FFF, 0x8000, 0xFFFF, 0x10000])
def test_properties_that_are_too_long_are_refused_in_the_same_way(size: int) -> None:
    form = RecordForm(
        topic="t", queue_id=0, born_timestamp=0, born_host="1.1.1.1:1", store_timestamp=0, store_host="1.1.1.1:1"
    )
    entry = struct.pack(">iiiii", 23 + size, 0, 0, 0, 1) + b"x" + struct.pack(">H", size & 0xFFFF) + b"p" * size
    found = tried(batch_records, form, entry * 9)
    assert found == tried(RecordForm.batch, form, entry * 9)
    assert (found[0] is ProtocolError) == (size > 0x7FFF)
