from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.scan import read_entry
from evenq.broker.store.seal import has_seal, is_sealed, seal, with_room_for_seal
from evenq.protocol.properties import decode_properties
from evenq.protocol.records import encode_record


def record(properties: str) -> bytes:
    return encode_record(
        topic="orders",
        body=b"hello",
        queue_id=3,
        queue_offset=7,
        commit_log_offset=4096,
        born_timestamp=1,
        born_host="10.0.0.7:4711",
        store_timestamp=1_700_000_000_000,
        store_host="127.0.0.1:10911",
        properties=properties,
    )


@given(st.text(st.sampled_from("\0ab\x01\x02"), max_size=30).filter(lambda text: "\0" in text))
def test_any_torn_byte_of_a_sealed_record_is_noticed(properties: str) -> None:
    whole = seal(record(with_room_for_seal(properties.encode()).decode()))
    entry = read_entry(whole, 0, 4096)
    assert entry is not None
    assert not entry.doubtful
    for kept in range(len(whole) - 1):
        torn = read_entry(whole[:kept] + bytes(len(whole) - kept), 0, 4096)
        assert torn is None or torn.doubtful


def test_the_checksum_stands_as_java_writes_it() -> None:
    whole = seal(record(with_room_for_seal(b"KEYS\x01a\0b\x02").decode()))
    assert len(whole) == len(record("KEYS\x01a\0b\x02")) + 20
    name, value = whole[-20:-12], whole[-11:-1]
    assert (name, whole[-12:-11], whole[-1:]) == (b"__CRC32#", b"\x01", b"\x02")
    # Java reads the digits from the last to the first
    assert int(value[::-1]) == crc32(whole[:-20]) & 0x7FFFFFFF
    assert is_sealed(whole)
    assert not is_sealed(whole.replace(b"hello", b"jello"))


@pytest.mark.parametrize(
    ("given_properties", "wanted"),
    [
        ("KEYS\x01a\0b\x02", {"KEYS": "a\0b"}),
        ("KEYS\x01a\0b", {"KEYS": "a\0b"}),
        ("__CRC32#\x011234567890\x02KEYS\x01\0\x02", {"KEYS": "\0"}),
        ("KEYS\x01\0\x02__CRC32#\x0112", {"KEYS": "\0"}),
        ("X__CRC32#\x01a\0\x02", {"X__CRC32#": "a\0"}),
    ],
)
def test_other_properties_stay_as_they_are(given_properties: str, wanted: dict[str, str]) -> None:
    made = with_room_for_seal(given_properties.encode())
    assert has_seal(made)
    assert decode_properties(made.decode()) == wanted | {"__CRC32#": "0" * 10}
