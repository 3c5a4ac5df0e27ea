"""Records of batches are those of their messages; see test_records.py for what they are made of."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol.batch import BatchEntry, encode_batch, split_batch
from evenq.protocol.evenbatch import batch_records
from evenq.protocol.recordform import RecordForm
from evenq.protocol.records import decode_messages, split_records
from tests.protocol.cases import ints

hosts = st.sampled_from(["127.0.0.1:9876", "[2001:db8::1]:9876"])
forms = st.builds(
    RecordForm,
    topic=st.sampled_from(["orders", "t" * 127, "t" * 128]),
    queue_id=ints,
    born_timestamp=st.integers(0, 1 << 60),
    born_host=hosts,
    store_timestamp=st.integers(0, 1 << 60),
    store_host=hosts,
    sys_flag=st.sampled_from([0, 4, 8]),
    reconsume_times=ints,
    prepared_transaction_offset=st.integers(-(1 << 60), 1 << 60),
)
texts = st.text(max_size=30).filter(lambda text: not text.endswith("\0"))
entries = st.builds(BatchEntry, st.binary(max_size=40), texts, ints)


@given(forms, st.lists(entries, max_size=6), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_batch_gives_the_records_of_its_messages(
    form: RecordForm, found: list[BatchEntry], queue_offset: int, log_offset: int
) -> None:
    data = encode_batch(found)
    records: list[bytes] = []
    for number, entry in enumerate(found):
        place = queue_offset + number, log_offset + sum(map(len, records))
        records.append(form.record(entry.body, entry.properties.encode(), *place, flag=entry.flag))
    offsets = [log_offset + sum(map(len, records[:number])) for number in range(len(records))]
    made = form.batch(data, queue_offset, log_offset)
    assert made.records == b"".join(records)
    assert made.sizes == [len(record) for record in records]
    assert made.tails() == [
        record[len(record) - len(entry.properties.encode()) - 2 :] for record, entry in zip(records, found, strict=True)
    ]
    assert sum(made.sizes) <= form.most(data)
    if records:
        assert split_records(b"".join(records)) == [offset - log_offset for offset in offsets]
        assert [message.commit_log_offset for message in decode_messages(b"".join(records))] == offsets


def test_zeros_that_a_store_could_take_for_a_torn_record_are_noticed() -> None:
    form = RecordForm(
        topic="t", queue_id=0, born_timestamp=0, born_host="1.1.1.1:1", store_timestamp=0, store_host="1.1.1.1:1"
    )
    for properties, zeros in [("", False), ("a\x01b\x02", False), ("a\x01\0\x02", True), ("a\x01b\0", True)]:
        for count in (1, 20):
            made = batch_records(form, encode_batch([BatchEntry(b"x", properties)] * count), 0, 0)
            assert sum(made.sizes) == len(made.records)
            assert made.has_zeros == zeros
            assert form.batch(encode_batch([BatchEntry(b"\0", properties)] * count), 0, 0).has_zeros == zeros


@given(forms, st.lists(entries, min_size=1, max_size=3), st.data())
def test_what_is_no_batch_is_refused_and_nothing_else(
    form: RecordForm, found: list[BatchEntry], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(found))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(1, len(damaged))) :]
    try:
        parts = split_batch(bytes(damaged))
    except ProtocolError:
        with pytest.raises((ProtocolError, ArgumentError)):
            form.batch(bytes(damaged), 0, 0)
    else:
        if not any(damaged[end - 1] == 0 and end > tail + 2 for _, tail, end, _ in parts):
            assert len(form.batch(bytes(damaged), 0, 0).sizes) == len(parts)


def test_properties_longer_than_a_record_takes_are_refused() -> None:
    form = RecordForm(
        topic="t", queue_id=0, born_timestamp=0, born_host="1.1.1.1:1", store_timestamp=0, store_host="1.1.1.1:1"
    )
    size = 0x8000
    data = struct.pack(">iiiii", 22 + size, 0, 0, 0, 0) + struct.pack(">H", size) + b"p" * size
    with pytest.raises(ProtocolError, match="has properties of -32768"):
        form.batch(data, 0, 0)
