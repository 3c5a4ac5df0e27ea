"""Schemas as people have them, to Spark's: pure, in the plain JSON form that Spark has for its own.

A schema is given as Spark's DDL (``id BIGINT NOT NULL, total DOUBLE``), or as a file with one of these:

| file | what is taken |
| --- | --- |
| JSON Schema | ``type`` (one, or one with ``null``), ``properties``, ``required``, ``items``, ``additionalProperties`` (a schema), ``format`` ``date-time`` and ``date`` |
| Avro | records, arrays, maps, enums, fixed, unions of one type with ``null``, ``logicalType`` ``date``, ``timestamp-millis``, ``timestamp-micros``, ``decimal`` |
| Spark | what ``frame.schema.json()`` gives |

A field that is required in JSON Schema, or is no union with null and has no default in Avro, must be there and not be null.
Anything else in such a file is an error that names the place: a schema that is half understood would lose data.
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenq.errors import ArgumentError

__all__ = ["from_avro", "from_json_schema", "read_schema_file"]

# Spark's form of a type: a name, or a mapping with "type".
Type = Any


def read_schema_file(path: Path) -> dict[str, Any]:
    """The schema in a file, told apart by what is in it."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise ArgumentError("schema", str(path), f"the file is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise ArgumentError(
            "schema", str(path), "the file must hold an object: JSON Schema, an Avro record, or Spark's"
        )
    try:
        match document.get("type"):
            case "record":
                found = from_avro(document)
            case "struct":
                found = document
            case _:
                found = from_json_schema(document)
    except ValueError as error:
        raise ArgumentError("schema", str(path), str(error)) from None
    return found


def _struct(fields: list[dict[str, Any]], place: str) -> dict[str, Any]:
    if not fields:
        raise ValueError(f"{place or 'the schema'} has no fields: name them")
    return {"type": "struct", "fields": fields}


def _field(name: str, kind: Type, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


# JSON Schema

_JSON = {"integer": "long", "number": "double", "boolean": "boolean", "string": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_COMBINED = ("$ref", "oneOf", "anyOf", "allOf", "not", "if", "patternProperties", "prefixItems")


def from_json_schema(document: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """
    >>> from_json_schema({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': False, 'metadata': {}}]
    """
    kind, _ = _json_type(document, place)
    if not isinstance(kind, dict) or kind["type"] != "struct":
        raise ValueError("the schema must be of an object with properties")
    return kind


def _json_type(schema: object, place: str) -> tuple[Type, bool]:
    """The type, and whether it may be null."""
    where = place or "the schema"
    if not isinstance(schema, Mapping):
        raise ValueError(f"{where} is {schema!r} where a schema must be")
    for word in _COMBINED:
        if word in schema:
            raise ValueError(f"{where} uses {word}, which has no type in Spark: give the type itself")
    given = schema.get("type", "object" if "properties" in schema else None)
    names = [given] if isinstance(given, str) else list(given or ())
    nullable = "null" in names
    names = [name for name in names if name != "null"]
    if len(names) != 1:
        raise ValueError(f"{where} has type {given!r}: give one type, with or without null")
    (name,) = names
    if name == "string":
        return _FORMATS.get(schema.get("format", ""), "string"), nullable
    if name in _JSON:
        return _JSON[name], nullable
    if name == "array":
        element, may_be_null = _json_type(schema.get("items"), f"{where}[]")
        return {"type": "array", "elementType": element, "containsNull": may_be_null}, nullable
    if name == "object":
        return _json_object(schema, place), nullable
    raise ValueError(f"{where} has type {name!r}: give one of {', '.join([*_JSON, 'array', 'object'])}")


def _json_object(schema: Mapping[str, Any], place: str) -> Type:
    others = schema.get("additionalProperties")
    if "properties" not in schema and isinstance(others, Mapping):
        value, may_be_null = _json_type(others, f"{place}.*")
        return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": may_be_null}
    required = set(schema.get("required", ()))
    properties = schema.get("properties", {})
    if missing := sorted(required - set(properties)):
        raise ValueError(f"{_below(place, missing[0])} is required and has no type: put it under properties")
    fields = []
    for name, sub in properties.items():
        kind, nullable = _json_type(sub, _below(place, name))
        fields.append(_field(name, kind, nullable or name not in required))
    return _struct(fields, place)


# Avro

_AVRO = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
}


def from_avro(document: Mapping[str, Any]) -> dict[str, Any]:
    """
    >>> from_avro({"type": "record", "fields": [{"name": "id", "type": ["null", "long"]}]})["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': True, 'metadata': {}}]
    """
    return _avro_record(document, "", {})


def _avro_record(schema: Mapping[str, Any], place: str, named: dict[str, Type]) -> dict[str, Any]:
    fields = []
    for each in schema.get("fields", ()):
        kind, nullable = _avro_type(each["type"], _below(place, each["name"]), named)
        fields.append(_field(each["name"], kind, nullable or "default" in each))
    return _struct(fields, place)


def _avro_type(schema: object, place: str, named: dict[str, Type]) -> tuple[Type, bool]:
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        others = [part for part in schema if part != "null"]
        if len(others) != 1:
            raise ValueError(f"{place} is a union of {others!r}: give one type, with or without null")
        return _avro_type(others[0], place, named)[0], len(others) < len(schema)
    if isinstance(schema, str):
        known = _AVRO.get(schema) or named.get(schema)
        if known is None:
            raise ValueError(
                f"{place} has type {schema!r}: give one of {', '.join(_AVRO)}, or a type that is named above"
            )
        return known, False
    if not isinstance(schema, Mapping):
        raise ValueError(f"{place} is {schema!r} where a type must be")
    return _avro_complex(schema, place, named), False


def _avro_complex(schema: Mapping[str, Any], place: str, named: dict[str, Type]) -> Type:
    kind = schema.get("type")
    logical = schema.get("logicalType")
    found: Type
    if logical == "decimal":
        found = f"decimal({schema['precision']},{schema.get('scale', 0)})"
    elif logical in _LOGICAL:
        found = _LOGICAL[logical]
    elif kind == "record":
        found = _avro_record(schema, place, named)
    elif kind == "enum":
        found = "string"
    elif kind == "fixed":
        found = "binary"
    elif kind == "array":
        element, nullable = _avro_type(schema.get("items"), f"{place}[]", named)
        found = {"type": "array", "elementType": element, "containsNull": nullable}
    elif kind == "map":
        value, nullable = _avro_type(schema.get("values"), f"{place}.*", named)
        found = {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": nullable}
    else:
        found, _ = _avro_type(kind, place, named)
    if "name" in schema:
        named[schema["name"]] = found
    return found
