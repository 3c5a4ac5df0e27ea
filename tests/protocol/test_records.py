from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError, RecordError
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import (
    COMMIT_LOG_OFFSET_AT,
    MIN_RECORD,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    body_crc,
    decode_messages,
    encode_record,
    split_records,
)
from evenq.protocol.view import MessageView, make_view
from tests.protocol.cases import hosts, ints, java_host, load, milliseconds, mutations, offsets, records, topics

PLAIN: dict[str, Any] = {
    "topic": "orders",
    "body": b"some",
    "queue_id": 1,
    "queue_offset": 2,
    "commit_log_offset": 3,
    "born_timestamp": 4,
    "born_host": "10.0.0.1:5",
    "store_timestamp": 6,
    "store_host": "10.0.0.2:7",
}
FLAGS = ("sys_flag", "flag", "reconsume_times", "prepared_transaction_offset")


@pytest.mark.parametrize("vector", load("message"), ids=lambda vector: str(vector["msg_id"]))
def test_what_java_wrote(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    (message,) = decode_messages(frame, broker="b")
    same = set(vector) & set(dir(MessageView)) - {"body", "born_host", "store_host"}
    assert len(same) == 12
    assert {name: getattr(message, name) for name in same} == {name: vector[name] for name in same}
    assert message.body.hex() == vector["body"]
    assert message.born_host == str_host(vector["born_host"])
    assert message.store_host == str_host(vector["store_host"])
    assert (message.broker, message.store_size) == ("b", len(frame))
    assert encoded(message) == frame


def test_what_did_not_come_as_a_record_looks_as_if_it_had() -> None:
    for host in "10.0.0.2:7", "[2001:db8::1]:7":
        fields = PLAIN | {"born_host": host, "store_host": host} | dict(zip(FLAGS, range(64, 68), strict=True))
        (message,) = decode_messages(encode_record(**fields), broker="b")
        made = make_view(**fields, broker="b", properties={}, body_crc=message.body_crc, store_size=message.store_size)
        names = {name for name in dir(MessageView) if not name.startswith("_")} - {"tried_again"}
        assert names >= {"msg_id", "stored_at", "queue", "tags", *PLAIN}
        assert {name: getattr(made, name) for name in names} == {name: getattr(message, name) for name in names}
        again = message.tried_again()
        assert (again.reconsume_times, again.prepared_transaction_offset) == (67, 67)
        assert {name for name in names if getattr(again, name) != getattr(message, name)} == {"reconsume_times"}


def test_a_message_can_be_read_as_text() -> None:
    (message,) = decode_messages(encode_record(**PLAIN | {"store_timestamp": 2**63 - 1}))
    assert "queue_offset=2" in repr(message)
    assert f"store_timestamp={2**63 - 1}" in repr(message)
    assert message.msg_id in repr(message)


def str_host(text: str) -> str:
    # the shortest form of an IPv6 address, where Java writes all its zeros
    return java_host(text).replace(":0:0:0:0:0:", "::")


def encoded(message: MessageView) -> bytes:
    fields = {name: getattr(message, name) for name in (*PLAIN, *FLAGS)}
    return encode_record(**fields, crc=message.body_crc, properties=encode_properties(message.properties))


@pytest.mark.parametrize("vector", load("records"), ids=lambda vector: f"{vector['kind']}-{vector['topic'][:9]}")
def test_what_java_compressed_and_its_second_version(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    (message,) = decode_messages(frame)
    assert message.body.hex() == vector["body"]
    assert message.topic == vector["topic"]
    assert message.properties == vector["properties"]
    assert message.sys_flag & SysFlag.COMPRESSED == 0
    if vector["kind"] == "v2" and len(vector["topic"]) > 127:
        assert encoded(message) == frame


@given(
    st.fixed_dictionaries(
        {
            "topic": topics,
            "body": st.binary(max_size=50),
            "queue_id": ints,
            "queue_offset": offsets,
            "commit_log_offset": offsets,
            "born_timestamp": milliseconds,
            "born_host": hosts,
            "store_timestamp": milliseconds,
            "store_host": hosts,
            "flag": ints,
            "reconsume_times": ints,
            "prepared_transaction_offset": offsets,
            "sys_flag": st.sampled_from([0, 2, 4, 8, 12, 16, 32]),
        }
    ),
    st.dictionaries(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9), max_size=4),
)
def test_there_and_back(fields: dict[str, Any], properties: dict[str, str]) -> None:
    clean = {clear(name): clear(value) for name, value in properties.items()}
    record = encode_record(**fields, properties=encode_properties(clean))
    (message,) = decode_messages(record)
    hosts_v6 = SysFlag.BORN_HOST_V6 * fields["born_host"].startswith("[")
    hosts_v6 |= SysFlag.STORE_HOST_V6 * fields["store_host"].startswith("[")
    fields["sys_flag"] = fields["sys_flag"] & ~48 | hosts_v6
    assert {name: getattr(message, name) for name in fields} == fields
    assert message.properties == clean
    assert (message.body_crc, message.store_size) == (body_crc(fields["body"]), len(record))


def clear(text: str) -> str:
    return text.replace("\x01", "1").replace("\x02", "2")


def test_a_store_can_fill_in_what_it_learns_late() -> None:
    record = bytearray(encode_record(**PLAIN))
    for at in (QUEUE_OFFSET_AT, COMMIT_LOG_OFFSET_AT, STORE_TIMESTAMP_AT):
        record[at : at + 8] = at.to_bytes(8, "big")
    (message,) = decode_messages(bytes(record))
    assert (message.queue_offset, message.commit_log_offset, message.store_timestamp) == (
        QUEUE_OFFSET_AT,
        COMMIT_LOG_OFFSET_AT,
        STORE_TIMESTAMP_AT,
    )


@given(st.lists(records(), max_size=5))
def test_the_chain_of_sizes(pieces: list[bytes]) -> None:
    starts = [sum(map(len, pieces[:index])) for index in range(len(pieces))]
    assert split_records(b"".join(pieces)) == starts


@given(st.lists(records(), max_size=6))
def test_many_are_read_as_each_alone_and_by_the_long_way(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    together = decode_messages(body, broker="b")
    assert together == [message for piece in pieces for message in decode_messages(piece, broker="b")]
    # the long way is the one that looks at checksums
    assert together == decode_messages(body, broker="b")


def test_records_of_one_size_may_be_divided_otherwise() -> None:
    divided = [("orders", b"body", "a"), ("order", b"body!", "a"), ("orders", b"bod", "ab"), ("orders", b"body", "b")]
    body = b"".join(
        encode_record(**PLAIN | {"topic": topic, "body": value, "properties": encode_properties({"k": property_})})
        for topic, value, property_ in divided
    )
    assert len({split_records(body)[1], len(body) // 4}) == 1
    found = [(message.topic, message.body, message.properties["k"]) for message in decode_messages(body)]
    assert found == divided


@pytest.mark.parametrize("left", [1, 3, 4, MIN_RECORD - 1, MIN_RECORD, 100])
def test_a_cut_chain_names_the_place(left: int) -> None:
    record = encode_record(**PLAIN)
    assert left < len(record)
    with pytest.raises(ProtocolError, match=f"at {len(record)} of"):
        decode_messages(record + record[:left])


@given(mutations(st.lists(records(), min_size=1, max_size=3).map(b"".join)))
def test_damage_is_a_protocol_error(body: bytes) -> None:
    poisoned: list[RecordError] = []
    try:
        for message in decode_messages(body, poisoned=poisoned):
            assert body_crc(message.body) == message.body_crc or message.sys_flag & (SysFlag.COMPRESSION | 0xC0)
    except ProtocolError:
        pass


def test_a_poisoned_message_is_named_and_can_be_skipped() -> None:
    good = encode_record(**PLAIN)
    bad = encode_record(**PLAIN | {"queue_offset": 77, "sys_flag": SysFlag.COMPRESSED})
    with pytest.raises(RecordError, match="message 77 of queue 1 of topic 'orders'") as caught:
        decode_messages(good + bad + good)
    assert (caught.value.topic, caught.value.queue_id, caught.value.queue_offset) == ("orders", 1, 77)
    poisoned: list[RecordError] = []
    assert len(decode_messages(good + bad + good, poisoned=poisoned)) == 2
    assert [error.queue_offset for error in poisoned] == [77]


def test_a_wrong_checksum_is_found() -> None:
    good, bad = encode_record(**PLAIN), encode_record(**PLAIN, crc=1)
    with pytest.raises(RecordError, match="checksum"):
        decode_messages(bad)
    poisoned: list[RecordError] = []
    assert len(decode_messages(good + bad + good, poisoned=poisoned)) == 2
    assert [error.queue_offset for error in poisoned] == [PLAIN["queue_offset"]]
    assert [message.body_crc for message in decode_messages(bad, check_crc=False)] == [1]


def test_no_checksum_is_not_a_wrong_one() -> None:
    assert decode_messages(encode_record(**PLAIN, crc=0))[0].body == PLAIN["body"]


@pytest.mark.parametrize(
    ("change", "name"),
    [({"topic": ""}, "topic"), ({"topic": "t" * 40_000}, "topic"), ({"properties": "x" * 32_768}, "properties"),
     ({"store_host": "localhost:1"}, "host"), ({"born_host": "::1:1"}, "host")],
)  # fmt: skip
def test_what_no_record_can_hold(change: dict[str, str], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        encode_record(**PLAIN | change)
    assert caught.value.argument == name
