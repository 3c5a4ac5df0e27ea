"""Rows on the wire, next to what the producer makes of a message."""

import re
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError
from evenq.model import Message, Property
from evenq.protocol.batch import BatchEntry, decode_batch
from evenq.protocol.compression import decompress
from evenq.protocol.properties import decode_properties
from evenq.spark.checksums import checksums
from evenq.spark.marks import PROPERTY, Origin
from evenq.spark.rows import Packed, RowPacker

ORIGIN = Origin("5f2c8e01-a9b3-4d77-8e01-b2c3d4e5f607", 12, 3)
TYPES = {
    "value": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "sharding_key": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "delay_level": pa.int32(),
    "deliver_at": pa.timestamp("us", "UTC"),
    "row_number": pa.int64(),
    "unique_key": pa.string(),
}


def packer(most: int = 1_000_000) -> RowPacker:
    return RowPacker(ORIGIN, most)


def frame(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = [name for name in TYPES if any(name in row for row in rows)] or ["value"]
    return pa.record_batch({name: pa.array([row.get(name) for row in rows], TYPES[name]) for name in names})


def entries(packed: Packed) -> list[BatchEntry]:
    return decode_batch(b"".join(packed.entries.to_pylist()))


def checksum(value: bytes) -> int:
    return int(checksums([pa.array([value])])[0])


names = st.text("abcXYZäé✓0", min_size=1, max_size=5)
rows = st.fixed_dictionaries(
    {"value": st.binary(min_size=1, max_size=30)},
    optional={
        "keys": st.none() | names,
        "tags": st.none() | names,
        "sharding_key": st.none() | names,
        "properties": st.none() | st.dictionaries(names, names, max_size=3).map(lambda found: list(found.items())),
    },
)


@given(st.lists(rows, max_size=6), st.integers(0, 6))
def test_a_row_is_the_message_that_a_producer_would_make(given_rows: list[dict[str, Any]], cut: int) -> None:
    packing = packer()
    # a task gets its rows in several batches, and slices of batches
    whole = frame(given_rows)
    found = [entry for part in (whole.slice(0, cut), whole.slice(cut)) for entry in entries(packing.pack(part))]
    assert len(found) == len(given_rows)
    for number, (row, entry) in enumerate(zip(given_rows, found, strict=True)):
        message = Message(
            "t",
            row["value"],
            tags=row.get("tags"),
            keys=row.get("keys") or (),
            sharding_key=row.get("sharding_key"),
            properties=dict(row.get("properties") or ()),
        )
        properties = decode_properties(entry.properties)
        assert re.fullmatch(rf"5f2c8e01a9b34d77\.12\.3\.{number}\.[0-9a-f]{{8}}", properties.pop(Property.UNIQUE_KEY))
        assert (entry.body, properties) == (row["value"], message.wire_properties())


def test_a_mark_is_the_same_again_and_tells_contents_apart() -> None:
    def marks(*given_rows: dict[str, Any]) -> list[str]:
        found = [decode_properties(entry.properties) for entry in entries(packer().pack(frame([*given_rows])))]
        return [properties[Property.UNIQUE_KEY] for properties in found]

    a, b = {"value": b"a", "tags": "t"}, {"value": b"b", "tags": "t"}
    assert marks(a, b) == marks(a, b)
    assert marks(a) != marks(b)
    assert marks(a) != marks(a | {"tags": "u"})
    assert marks({"value": b"a"}) == [ORIGIN.mark(0, checksum(b"a"))]


def test_what_the_broker_wrote_does_not_take_effect_again() -> None:
    read = [("color", "red"), ("DELAY", "3"), ("UNIQ_KEY", "old"), (PROPERTY, "old"), ("TAGS", "old"), ("none", None)]
    (entry,) = entries(packer().pack(frame([{"value": b"x", "tags": "new", "properties": read}])))
    properties = decode_properties(entry.properties)
    assert properties.pop(Property.UNIQUE_KEY) != "old"
    assert properties == {"color": "red", "TAGS": "new"}


def test_keys_may_be_a_list() -> None:
    kind = pa.list_(pa.field("element", pa.string(), nullable=False))
    batch = pa.record_batch({"value": ["x", "y"], "keys": pa.array([["a", "b"], None], kind)})
    first, second = (decode_properties(entry.properties) for entry in entries(packer().pack(batch)))
    assert (first["KEYS"], "KEYS" in second) == ("a b", False)


def test_delayed_and_large_rows_go_alone() -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    large = b"x" * 5000
    packed = packer().pack(
        frame(
            [
                {"value": b"now"},
                {"value": b"later", "delay_level": 3},
                {"value": b"at noon", "deliver_at": noon},
                {"value": b"also now", "delay_level": 0},
                {"value": large},
            ]
        )
    )
    assert sorted(packed.alone) == [1, 2, 4]
    assert decode_properties(packed.alone[1].properties)["DELAY"] == "3"
    assert decode_properties(packed.alone[2].properties)["TIMER_DELIVER_MS"] == str(round(noon.timestamp() * 1000))
    assert decompress(packed.alone[4].body, packed.alone[4].sys_flag) == large


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"value": None}, "value of row 1 in partition 3=None: a message has 1 to 100 bytes"),
    ({"value": b""}, "value of row 1 in partition 3='0 bytes'"),
    ({"value": b"x" * 101}, "value of row 1 in partition 3='101 bytes'"),
    ({"value": b"x", "tags": "a\x02b"}, "column tags"),
    ({"value": b"x", "properties": [("a", "b\x01")]}, "column properties"),
    ({"value": b"x", "tags": "x" * 40_000}, "all together may have 32767 bytes"),
]


@pytest.mark.parametrize(("row", "message"), WRONG)
def test_what_no_broker_takes_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        packer(100).pack(frame([{"value": b"fine"}, row]))


def test_rows_that_a_frame_numbers_are_marked_so_in_any_task() -> None:
    def marks(rows: list[dict[str, Any]], partition: int) -> list[str]:
        own = RowPacker(Origin("writer", 2, partition), 1000)
        return [decode_properties(entry.properties)[Property.UNIQUE_KEY] for entry in entries(own.pack(frame(rows)))]

    numbered = [{"value": b"%d" % n, "row_number": n} for n in (5, 1 << 40, 0)]
    found = marks(numbered, 0)
    assert [mark.rpartition(".")[0] for mark in found] == ["writer.2.0.5", f"writer.2.0.{1 << 40}", "writer.2.0.0"]
    assert marks(numbered[::-1], 9)[::-1] == found


def test_a_unique_key_may_be_given_and_the_mark_stands_beside_it() -> None:
    packed = packer().pack(frame([{"value": b"x", "unique_key": "AB12"}, {"value": b"y"}]))
    first, second = (decode_properties(entry.properties) for entry in entries(packed))
    marks = [ORIGIN.mark(0, checksum(b"x")), ORIGIN.mark(1, checksum(b"y"))]
    assert (first[Property.UNIQUE_KEY], first[PROPERTY]) == ("AB12", marks[0])
    assert (second[Property.UNIQUE_KEY], second[PROPERTY]) == (marks[1], marks[1])
