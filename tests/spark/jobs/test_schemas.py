"""Schemas in JSON Schema and Avro become Spark's, or an error that names the place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenq.errors import ArgumentError
from evenq.spark.jobs.schemas import from_avro, from_json_schema, read_schema_file


def field(name: str, kind: Any, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "lines", "maybe"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "maybe": {"type": ["string", "null"]},
        "total": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "lines": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}, "required": ["sku"]}},
        "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED"]}, "default": "RED"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "labels", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "plain", "type": {"type": "double"}},
    ],
}  # fmt: skip


def test_json_schema() -> None:
    line = struct(field("sku", "string", False))
    assert from_json_schema(JSON_SCHEMA) == struct(
        field("id", "long", False),
        field("maybe", "string"),
        field("total", "double"),
        field("at", "timestamp"),
        field("day", "date"),
        field("mail", "string"),
        field("lines", {"type": "array", "elementType": line, "containsNull": False}, False),
        field("labels", {"type": "map", "keyType": "string", "valueType": "boolean", "valueContainsNull": False}),
    )


def test_avro() -> None:
    line = struct(field("sku", "string", False))
    assert from_avro(AVRO) == struct(
        field("id", "long", False),
        field("maybe", "string"),
        field("colour", "string"),
        field("at", "timestamp", False),
        field("price", "decimal(9,2)"),
        field("lines", {"type": "array", "elementType": line, "containsNull": False}, False),
        field("first", line),
        field("labels", {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}, False),
        field("plain", "double", False),
    )


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"type": "array", "items": {"type": "string"}}, "must be of an object"),
        ({"type": "object"}, "the schema has no fields"),
        ({"properties": {"a": {"properties": {"b": {"type": "int"}}}}}, "a.b has type 'int': give one of integer"),
        ({"properties": {"a": {"oneOf": []}}}, "a uses oneOf"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "a has type"),
        ({"properties": {"a": {"type": "array"}}}, r"a\[\] is None"),
        ({"properties": {"a": {"type": "string"}}, "required": ["b"]}, "b is required and has no type"),
        ({"type": "record", "fields": [{"name": "a", "type": ["int", "string"]}]}, "a is a union of"),
        ({"type": "record", "fields": [{"name": "a", "type": "Unknown"}]}, "a has type 'Unknown'"),
        ({"type": "record", "fields": []}, "the schema has no fields"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_type_in_spark_is_named(tmp_path: Path, document: object, complaint: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ArgumentError, match=complaint):
        read_schema_file(path)


def test_files_that_are_no_schema(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    for text, complaint in (("{", "the file is not JSON"), ("[]", "the file must hold an object")):
        path.write_text(text)
        with pytest.raises(ArgumentError, match=complaint):
            read_schema_file(path)


def test_sparks_own_form_is_taken_as_it_is(tmp_path: Path) -> None:
    form = struct(field("id", "long", False))
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(form))
    assert read_schema_file(path) == form
