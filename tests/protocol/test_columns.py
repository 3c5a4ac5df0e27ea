import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError, RecordError
from evenq.model import Property
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.columns import SCHEMA, decode_columns, decode_many, schema
from evenq.protocol.columns.tables import find_table
from evenq.protocol.compression import compress
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import decode_messages, encode_record
from evenq.protocol.view import MessageView
from tests.protocol.cases import load, mutations, records
from tests.protocol.test_records import PLAIN


def rows_of(messages: Sequence[MessageView]) -> dict[str, list[Any]]:
    """What the columns must hold."""
    return {
        "topic": [message.topic for message in messages],
        "broker": [message.broker for message in messages],
        "queue_id": [message.queue_id for message in messages],
        "offset": [message.queue_offset for message in messages],
        "timestamp": [message.store_timestamp * 1000 for message in messages],
        "born_timestamp": [message.born_timestamp * 1000 for message in messages],
        "keys": [message.properties.get(Property.KEYS) for message in messages],
        "tags": [message.tags for message in messages],
        "value": [message.body for message in messages],
        "msg_id": [message.msg_id for message in messages],
        "unique_key": [message.unique_key for message in messages],
        "reconsume_times": [message.reconsume_times for message in messages],
        "properties": [message.properties for message in messages],
    }


def rows_in(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """What the columns do hold."""
    batch.validate(full=True)
    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name.endswith("timestamp"):
            column = column.view(pa.int64())
        found[name] = column.to_pylist(maps_as_pydicts="strict")
    return found


pulls = st.lists(st.lists(records(batches=False), max_size=4).map(b"".join), min_size=1, max_size=3)


@given(pulls)
def test_equal_to_the_object_decoder(bodies: list[bytes]) -> None:
    brokers = [f"broker-{index}" for index in range(len(bodies))]
    messages = [
        message
        for body, broker in zip(bodies, brokers, strict=True)
        for message in decode_messages(body, broker=broker)
    ]
    expected = rows_of(messages)
    assert rows_in(decode_many(bodies, brokers=brokers, include_properties=True)) == expected
    maps = expected.pop("properties")
    assert rows_in(decode_many(bodies, brokers=brokers)) == expected
    names = sorted({name for properties in maps for name in properties if name} - set(expected))[:2]
    expected |= {name: [properties.get(name) for properties in maps] for name in names}
    assert rows_in(decode_many(bodies, brokers=brokers, property_columns=names)) == expected


@given(
    st.lists(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "some name"]), min_size=1, max_size=4),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60), st.sampled_from([1, 2, 65, 0xC3, 0xA9])), max_size=3),
)
def test_messages_that_are_nearly_alike(names: list[str], count: int, changes: list[tuple[int, int, int]]) -> None:
    text = "".join(f"{name}\x01{name.lower()}{number}\x02" for number, name in enumerate(names))
    alike = [bytearray(encode_record(**PLAIN | {"queue_offset": n, "properties": text})) for n in range(count)]
    for message, back, byte in changes:
        if message < count and back <= len(text):
            alike[message][-back] = byte
    body = bytes(b"".join(alike))
    expected = rows_of(decode_messages(body, broker="b"))
    assert rows_in(decode_columns(body, broker="b", include_properties=True)) == expected
    assert rows_in(decode_many([body], brokers=["b"], property_columns=["a"]))["a"] == [
        properties.get("a") for properties in expected["properties"]
    ]


def test_the_tables_of_messages_that_are_alike_are_found() -> None:
    text = "TAGS\x01paid\x02KEYS\x01o-%d\x02"
    both = np.frombuffer((text % 1 + text % 2).encode(), np.uint8)
    bounds = np.array([0, 19, 38])
    table = find_table(both, bounds)
    assert table is not None
    assert table.column(b"KEYS").to_pylist() == ["o-1", "o-2"]
    assert table.column(b"KEY").to_pylist() == [None, None]
    for at in (0, 4, 5, 20, 33):
        other = both.copy()
        other[at] = 2
        assert find_table(other, bounds) is None
    assert find_table(both, np.array([0, 18, 38])) is None


@given(st.lists(records(), min_size=1, max_size=4).map(b"".join))
def test_batches_within_records_too(body: bytes) -> None:
    messages = decode_messages(body, broker="b")
    assert rows_in(decode_columns(body, broker="b", include_properties=True)) == rows_of(messages)


def test_batches_within_records_need_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    entries = [BatchEntry(b"%d" % n, f"KEYS\x01k{n}\x02") for n in range(8, 12)]
    batch = encode_record(**PLAIN | {"body": encode_batch(entries), "sys_flag": flags, "queue_offset": 8})
    single = encode_record(**PLAIN | {"queue_offset": 12})
    bodies, spans = [batch, batch + single], [(0, 10), (11, 20)]
    wanted = [message for body in bodies for message in decode_messages(body)]
    monkeypatch.setattr("evenq.protocol.columns.decode_messages", None)
    found = rows_in(decode_many(bodies, brokers=["a", "b"]))
    assert found["value"] == [message.body for message in wanted]
    assert found["keys"] == ["k8", "k9", "k10", "k11"] * 2 + [None]
    found = rows_in(decode_many(bodies, brokers=["a", "b"], spans=spans))
    assert list(zip(found["broker"], found["offset"], strict=True)) == [("a", 8), ("a", 9), ("b", 11), ("b", 12)]


def test_what_java_wrote() -> None:
    body = b"".join(bytes.fromhex(vector["frame"]) for name in ("message", "records") for vector in load(name))
    messages = decode_messages(body, broker="b")
    assert len(messages) == 53
    assert rows_in(decode_columns(body, broker="b", include_properties=True)) == rows_of(messages)


@given(mutations(st.lists(records(), min_size=1, max_size=3).map(b"".join)))
def test_damage_is_found_by_both_decoders(body: bytes) -> None:
    outcomes: list[object] = []
    for decode in (partial(decode_messages, check_crc=False), decode_columns):
        poisoned: list[RecordError] = []
        try:
            outcomes.append((len(decode(body, poisoned=poisoned)), list(map(str, poisoned))))
        except ProtocolError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_a_body_that_ends_within_a_record_is_not_mended_by_the_next() -> None:
    record = encode_record(**PLAIN)
    with pytest.raises(ProtocolError, match="cut off"):
        decode_many([record[:50], record[50:]], brokers=["a", "a"])


@pytest.mark.parametrize("bodies", [[], [b""], [b"", b""]])
def test_nothing(bodies: list[bytes]) -> None:
    batch = decode_many(bodies, brokers=["b"] * len(bodies), include_properties=True)
    assert batch.num_rows == 0
    assert batch.schema == schema(include_properties=True)


def test_one_broker_for_each_body() -> None:
    with pytest.raises(ArgumentError, match="2 bodies"):
        decode_many([b"", b""], brokers=["a"])


def test_the_columns_in_their_order() -> None:
    assert SCHEMA.names == [
        "topic", "broker", "queue_id", "offset", "timestamp", "born_timestamp", "keys", "tags", "value", "msg_id",
        "unique_key", "reconsume_times",
    ]  # fmt: skip
    assert schema().equals(SCHEMA)
    assert [*SCHEMA.names, "properties"] == schema(include_properties=True).names


def test_text_that_is_not_utf8_is_replaced() -> None:
    record = encode_record(**PLAIN, properties="TAGS\x01ab\x02KEYS\x01k\x02")
    body = record.replace(b"TAGS\x01ab", b"TAGS\x01\xe4b").replace(b"orders", b"order\xff")
    (message,) = decode_messages(body)
    assert (message.topic, message.tags) == ("order\ufffd", "\ufffdb")
    assert rows_in(decode_columns(body, include_properties=True)) == rows_of([message])


def test_a_name_twice_is_in_the_map_once() -> None:
    texts = ["a\x011\x02a\x012\x02", "user_id_1\x011\x02user_id_2\x012\x02b\x013\x02", "x\x011\x02y\x012\x02x\x013\x02"]
    body = b"".join(encode_record(**PLAIN, properties=text) for text in texts)
    found = rows_in(decode_columns(body, include_properties=True))["properties"]
    assert found == [{"a": "2"}, {"user_id_1": "1", "user_id_2": "2", "b": "3"}, {"y": "2", "x": "3"}]


def test_a_poisoned_message_is_left_out_and_named() -> None:
    packed, flags = compress(b"good" * 100, "LZ4")
    body = (
        encode_record(**PLAIN | {"body": packed, "sys_flag": flags})
        + encode_record(**PLAIN | {"queue_offset": 77, "sys_flag": SysFlag.COMPRESSED})
        + encode_record(**PLAIN)
    )
    with pytest.raises(RecordError, match="message 77 of queue 1 of topic 'orders'"):
        decode_columns(body)
    poisoned: list[RecordError] = []
    batch = decode_columns(body, poisoned=poisoned)
    assert batch["value"].to_pylist() == [b"good" * 100, b"some"]
    assert [error.queue_offset for error in poisoned] == [77]


@pytest.mark.parametrize("flags", [0, SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP])
def test_a_time_that_cannot_be_is_the_last_one_that_can(flags: int) -> None:
    record = encode_record(
        **PLAIN | {"body": encode_batch([BatchEntry(b"x")]), "sys_flag": flags, "store_timestamp": 2**62}
    )
    assert rows_in(decode_columns(record))["timestamp"] == [(2**63 - 1) // 1000 * 1000]


@pytest.mark.live
def test_pandas_is_left_alone() -> None:
    record = encode_record(**PLAIN, properties="KEYS\x01a\x02").hex()
    code = (
        "import sys; from evenq.protocol.columns import decode_many;"
        f"assert len(decode_many([bytes.fromhex('{record}')], brokers=['a'], include_properties=True)) == 1;"
        "print('pandas' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
