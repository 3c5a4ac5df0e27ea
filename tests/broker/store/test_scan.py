import json
from pathlib import Path

import pytest

from evenq.broker.store.scan import BLANK, read_entry, store_time
from evenq.protocol.filters import tag_code
from evenq.protocol.records import body_crc, encode_record

VECTORS = Path(__file__).parents[2] / "vectors" / "message.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()]


def record(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "topic": "orders",
        "body": b"hello",
        "queue_id": 3,
        "queue_offset": 7,
        "commit_log_offset": 4096,
        "born_timestamp": 1,
        "born_host": "10.0.0.7:4711",
        "store_timestamp": 1_700_000_000_000,
        "store_host": "127.0.0.1:10911",
        "properties": "KEYS\x01k\x02TAGS\x01paid\x02",
    }
    return encode_record(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["msg_id"]))
def test_records_by_java_are_whole(case: dict[str, object]) -> None:
    frame = bytes.fromhex(str(case["frame"]))
    # the client that made these cases leaves the checksum to the broker
    frame = frame[:8] + body_crc(bytes.fromhex(str(case["body"]))).to_bytes(4, "big") + frame[12:]
    offset = case["commit_log_offset"]
    assert isinstance(offset, int)
    entry = read_entry(frame, 0, offset)
    assert entry is not None
    assert (entry.topic, entry.queue_id, entry.queue_offset) == (case["topic"], case["queue_id"], case["queue_offset"])
    assert (entry.size, entry.store_time) == (len(frame), case["store_timestamp"])
    assert store_time(frame) == case["store_timestamp"]


@pytest.mark.parametrize("host", ["10.0.0.7:4711", "[2001:db8::1]:4711"])
def test_an_entry_says_what_the_consume_queue_needs(host: str) -> None:
    data = b"before" + record(born_host=host) + b"behind"
    entry = read_entry(data, 6, 4096)
    assert entry is not None
    assert (entry.topic, entry.queue_id, entry.queue_offset, entry.tags_code) == ("orders", 3, 7, tag_code("paid"))
    assert entry.store_time == 1_700_000_000_000


def test_a_record_that_belongs_elsewhere_is_not_taken() -> None:
    assert read_entry(record(), 0, 0) is None


def test_the_marker_at_the_end_of_a_file_is_known() -> None:
    assert read_entry(bytes.fromhex("00000100cbd43194") + bytes(20), 0, 0) is BLANK


def test_nothing_is_found_in_zeros_or_at_the_end() -> None:
    assert read_entry(bytes(200), 0, 0) is None
    assert read_entry(b"1234", 0, 0) is None
    assert read_entry(b"", 0, 0) is None


@pytest.mark.parametrize("properties", ["", "KEYS\x01k\x02TAGS\x01paid\x02"])
def test_a_record_cut_off_at_any_byte_is_not_whole(properties: str) -> None:
    whole = record(properties=properties)
    assert read_entry(whole, 0, 4096) is not None
    # a record without properties ends with two zeros of its own
    end = len(whole.rstrip(b"\0"))
    for kept in range(end):
        torn = whole[:kept] + bytes(len(whole) - kept + 100)
        entry = read_entry(torn, 0, 4096)
        assert entry is None or entry.doubtful, kept


def test_any_changed_byte_of_the_body_is_noticed() -> None:
    whole = record(body=bytes(range(100)))
    start = whole.index(bytes(range(100)))
    for at in range(start, start + 100):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        assert read_entry(bytes(damaged), 0, 4096) is None


def test_a_zero_byte_within_properties_is_no_damage() -> None:
    entry = read_entry(record(properties="TAGS\x01pa\0id\x02"), 0, 4096)
    assert entry is not None
    # without a checksum nobody can know
    assert entry.doubtful
    assert entry.tags_code == tag_code("pa\0id")


def test_a_sector_that_never_reached_the_disk_is_noticed() -> None:
    whole = record(body=b"b" * 700, properties="KEYS\x01" + "k" * 2000 + "\x02")
    for sector in range(0, len(whole), 512):
        torn = whole[:sector] + bytes(512) + whole[sector + 512 :]
        entry = read_entry(torn[: len(whole)], 0, 4096)
        assert entry is None or entry.doubtful
    assert read_entry(whole, 0, 4096) is not None
