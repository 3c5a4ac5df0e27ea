"""What is a good body, and what is said of a bad one: Spark and Python agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError
from evenq.spark.jobs.parsing import GOOD, PARSED, explained, parsed, read_schema, why

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = """id BIGINT NOT NULL, name STRING, total DOUBLE, price DECIMAL(5,2), at TIMESTAMP, day DATE, small SMALLINT,
 ok BOOLEAN, blob BINARY, place STRUCT<city: STRING NOT NULL, floor: INT>, lines ARRAY<STRUCT<sku: STRING NOT NULL>>,
 labels MAP<STRING, INT>"""

GOODS = [
    b'{"id": 1}',
    b' {"id": 1, "unknown": [1]} \n',
    b'{"id": 1, "name": "\xc3\xa9", "total": 3, "price": 1.5, "ok": false, "small": -32768}',
    b'{"id": 1, "at": "2026-01-01T10:00:00Z", "day": "2026-01-01", "blob": "QUJD"}',
    b'{"id": 1, "place": null, "lines": [], "labels": {"a": null}}',
    b'{"id": 1, "place": {"city": "x"}, "lines": [{"sku": "a"}, {"sku": "b"}], "labels": {"a": 1}}',
]
BADS = {
    b"": "not parseable: the body is empty",
    b"   ": "not parseable: Expecting value",
    b"hello": "not parseable: Expecting value",
    b'{"id": 1': "not parseable: Expecting ',' delimiter",
    b'{"id": 1} x': "not parseable: Extra data",
    b'{"id": 1}{"id": 2}': "not parseable: Extra data",
    b'{"id": 1}, {"id": 2}': "not parseable: Extra data",
    b"{'id': 1}": "not parseable: Expecting property name",
    b'{"id": 1, "name": "\xff"}': "not parseable: byte 19 is not UTF-8",
    b"null": "not parseable: None is not an object",
    b"7": "not parseable: 7 is not an object",
    b'[{"id": 1}]': "not parseable: [{'id': 1}] is not an object",
    b"{}": "missing field: id",
    b'{"id": null}': "missing field: id",
    b'{"ID": 1}': "missing field: id",
    b'{"id": "1"}': "wrong type: id is '1' where long must be",
    b'{"id": 1.5}': "wrong type: id is 1.5 where long must be",
    b'{"id": true}': "wrong type: id is True where long must be",
    b'{"id": 9223372036854775808}': "wrong type: id is 9223372036854775808 where long must be",
    b'{"id": 1, "small": 32768}': "wrong type: small is 32768 where short must be",
    b'{"id": 1, "total": "much"}': "wrong type: total is 'much' where double must be",
    b'{"id": 1, "price": 12345.1}': "wrong type: price is 12345.1 where decimal(5,2) must be",
    b'{"id": 1, "ok": "yes"}': "wrong type: ok is 'yes' where boolean must be",
    b'{"id": 1, "at": "soon"}': "wrong type: at is 'soon' where timestamp must be",
    b'{"id": 1, "day": "2026-13-01"}': "wrong type: day is '2026-13-01' where date must be",
    b'{"id": 1, "blob": "!"}': "wrong type: blob is '!' where binary must be",
    b'{"id": 1, "place": 5}': "wrong type: place is 5 where struct must be",
    b'{"id": 1, "place": {}}': "missing field: place.city",
    b'{"id": 1, "place": {"city": "x", "floor": "y"}}': "wrong type: place.floor is 'y' where integer must be",
    b'{"id": 1, "lines": {"sku": "a"}}': "wrong type: lines is {'sku': 'a'} where array must be",
    b'{"id": 1, "lines": [{"sku": "a"}, {"sku": null}]}': "missing field: lines[1].sku",
    b'{"id": 1, "labels": {"a": "b"}}': "wrong type: labels[a] is 'b' where integer must be",
}


def test_spark_and_python_agree_on_what_is_good(spark: SparkSession) -> None:
    schema = read_schema(DDL)
    rows = spark.createDataFrame([(value,) for value in [*GOODS, *BADS]], "value BINARY")
    both = parsed(rows, schema)
    good = {bytes(row.value): row[PARSED] for row in both.filter(GOOD).collect()}
    assert set(good) == set(GOODS)
    assert [good[value].id for value in GOODS] == [1] * len(GOODS)
    assert good[GOODS[-1]].lines[1].sku == "b"
    bad = {bytes(row.value): row.reason for row in explained(both.filter(f"NOT {GOOD}"), schema).collect()}
    assert set(bad) == set(BADS)
    for value, reason in BADS.items():
        assert bad[value].startswith(reason), value


FORM = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "lines", "type": {"type": "array", "elementType": "string", "containsNull": False}, "nullable": True},
    ],
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "lines", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.one_of(VALUES.map(lambda value: json.dumps(value).encode()), st.binary(max_size=20)))
def test_every_body_gets_one_reason_of_three_kinds(body: bytes) -> None:
    reason = why(body, FORM)
    assert reason.split(": ")[0] in ("not parseable", "missing field", "wrong type")
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("id WHATEVER", "Spark cannot read it"),
        ("", "name at least one field|Spark cannot read it"),
        ("id BIGINT, deep ARRAY<STRUCT<small: TINYINT>>", "make it SMALLINT"),
        ("nowhere.json", "there is no such file"),
    ],
)
def test_schemas_that_are_none(spark: SparkSession, given: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        read_schema(given)


def test_a_schema_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    document: dict[str, Any] = {"type": "record", "fields": [{"name": "id", "type": "long"}]}
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(document))
    assert read_schema(str(path)) == read_schema("id BIGINT NOT NULL")
