from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol.batch import BODY_AT, BatchEntry, decode_batch, encode_batch, split_batch
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import decode_properties
from evenq.protocol.records import decode_messages, encode_record
from tests.protocol.cases import ints, load, mutations

entries = st.builds(BatchEntry, st.binary(max_size=40), st.text(max_size=40), ints)
batches = st.lists(entries, max_size=5)


@pytest.mark.parametrize("vector", load("batches"), ids=lambda vector: str(len(vector["messages"])))
def test_what_java_wrote(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    found = decode_batch(frame)
    assert [(entry.body.hex(), entry.flag, decode_properties(entry.properties)) for entry in found] == [
        (message["body"], message["flag"], message["properties"]) for message in vector["messages"]
    ]
    assert encode_batch(found) == frame


@given(batches)
def test_there_and_back(found: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(found)) == found


@given(batches)
def test_parts_are_where_the_messages_are(found: list[BatchEntry]) -> None:
    data = encode_batch(found)
    parts = split_batch(data)
    ends = [end for _, _, end, _ in parts]
    assert [start for start, _, _, _ in parts] == [0, *ends][: len(parts)]
    assert [
        (data[start + BODY_AT : tail], data[tail + 2 : end].decode(), flag) for start, tail, end, flag in parts
    ] == [(entry.body, entry.properties, entry.flag) for entry in found]


@given(mutations(batches.map(encode_batch)))
def test_damage_is_a_protocol_error(data: bytes) -> None:
    try:
        found = decode_batch(data)
    except ProtocolError:
        return
    assert sum(22 + len(entry.body) for entry in found) <= len(data)


def test_properties_have_a_limit() -> None:
    with pytest.raises(ArgumentError, match="32767"):
        encode_batch([BatchEntry(b"", "x" * 32_768)])


def test_a_batch_in_one_record_counts_on_from_its_offset() -> None:
    body = encode_batch([BatchEntry(b"a", "TAGS\x01x\x02", 1), BatchEntry(b"b")])
    record = encode_record(
        topic="t",
        body=body,
        queue_id=0,
        queue_offset=10,
        commit_log_offset=0,
        born_timestamp=0,
        born_host="10.0.0.1:1",
        store_timestamp=0,
        store_host="10.0.0.1:1",
        sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
    )
    found = decode_messages(record)
    assert [(message.queue_offset, message.body, message.flag, message.tags) for message in found] == [
        (10, b"a", 1, "x"),
        (11, b"b", 0, None),
    ]
