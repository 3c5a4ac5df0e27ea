"""Bodies in JSON to typed columns, and for those that do not fit, why.

Spark decides what is good, in one pass and at its own speed; Python explains what is not, row by row, which is rare.
The body is read as the only element of a list, ``{"v":[…]}``: Spark itself stops after the first value of a text and
would say nothing of what follows it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenq.errors import ArgumentError
from evenq.spark.jobs.schemas import read_schema_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["explained", "incomplete", "parsed", "read_schema", "why"]

# Columns that are there only while a batch is written.
PARSED = "_evenq_parsed"
GOOD = "_evenq_good"
_BROKEN = "_evenq_broken"


def read_schema(given: str) -> StructType:
    """A schema from DDL or from a file of :mod:`evenq.spark.jobs.schemas`. Needs a Spark session for DDL."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    path = Path(given)
    is_file = given.endswith((".json", ".avsc")) or (len(given) < 256 and path.is_file())
    try:
        found = StructType.fromJson(read_schema_file(path)) if is_file else StructType.fromDDL(given)
    except FileNotFoundError:
        raise ArgumentError("schema", given, "there is no such file") from None
    except (PySparkException, KeyError, TypeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ArgumentError("schema", given, f"Spark cannot read it: {words}; give e.g. 'id BIGINT NOT NULL'") from None
    if "tinyint" in found.simpleString():
        raise ArgumentError("schema", given, "Spark reads 200 as -56 where TINYINT is to be read: make it SMALLINT")
    if not isinstance(found, StructType) or not found.fields:
        raise ArgumentError("schema", given, "name at least one field, e.g. 'id BIGINT NOT NULL'")
    return found


# What Spark does


def parsed(frame: DataFrame, schema: StructType) -> DataFrame:
    """The frame with two columns more: what is in ``value`` by the schema, and whether that is good."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    outer = StructType([StructField("v", ArrayType(schema)), StructField(_BROKEN, StringType())])
    text = sql.concat(sql.lit('{"v":['), sql.col("value").cast("string"), sql.lit("]}"))
    options = {"columnNameOfCorruptRecord": _BROKEN, "allowSingleQuotes": "false"}
    read = frame.withColumn("_evenq_read", sql.from_json(text, outer, options))
    good = " AND ".join(
        [
            f"_evenq_read.{_BROKEN} IS NULL",
            "size(_evenq_read.v) = 1",
            f"{PARSED} IS NOT NULL",
            "is_valid_utf8(value)",
            *(f"NOT ({condition})" for condition in incomplete(schema.jsonValue(), PARSED)),
        ]
    )
    judged = read.withColumn(PARSED, sql.expr("get(_evenq_read.v, 0)"))
    return judged.withColumn(GOOD, sql.expr(f"coalesce({good}, false)")).drop("_evenq_read")


def explained(frame: DataFrame, schema: StructType) -> DataFrame:
    """A frame of bad rows with a column more, ``reason``."""
    from pyspark.sql import functions as sql

    form = schema.jsonValue()
    return frame.withColumn("reason", sql.udf(lambda value: why(value, form), "string")(sql.col("value")))


def incomplete(kind: Any, place: str, depth: int = 0) -> Iterator[str]:
    """Conditions in SQL, each true where something that must be there is null.

    >>> form = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}]}
    >>> list(incomplete(form, "v"))
    ['v.`id` IS NULL']
    """
    if not isinstance(kind, Mapping):
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            path = f"{place}.`{field['name'].replace('`', '``')}`"
            if not field["nullable"]:
                yield f"{path} IS NULL"
            for inner in incomplete(field["type"], path, depth):
                yield f"({path} IS NOT NULL AND {inner})"
        return
    name = f"x{depth}"
    if kind["type"] == "array":
        values, element, may_be_null = place, kind["elementType"], kind["containsNull"]
    else:
        values, element, may_be_null = f"map_values({place})", kind["valueType"], kind["valueContainsNull"]
    inside = [] if may_be_null else [f"{name} IS NULL"]
    inside += [f"({name} IS NOT NULL AND {inner})" for inner in incomplete(element, name, depth + 1)]
    if inside:
        yield f"coalesce(exists({values}, {name} -> {' OR '.join(inside)}), false)"


# What Python explains


def why(value: bytes | None, schema: Mapping[str, Any]) -> str:
    """Why a body does not fit a schema: ``not parseable: …``, ``missing field: …`` or ``wrong type: …``.

    >>> form = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}]}
    >>> why(b'{"id": "7"}', form)
    "wrong type: id is '7' where long must be"
    """
    try:
        found = json.loads(bytes(value or b"").decode())
    except UnicodeDecodeError as error:
        return f"not parseable: byte {error.start} is not UTF-8"
    except RecursionError:
        return "not parseable: nested too deeply"
    except ValueError as error:
        return f"not parseable: {error}" if value else "not parseable: the body is empty"
    if not isinstance(found, dict):
        return f"not parseable: {_shown(found)} is not an object"
    return next(_faults(found, schema, ""), "not parseable: Spark cannot read it by the schema")


def _faults(value: Any, kind: Any, place: str) -> Iterator[str]:
    """What is wrong, the types first in the order of the fields."""
    name = kind["type"] if isinstance(kind, Mapping) else kind
    if name == "struct" and isinstance(value, dict):
        for field in kind["fields"]:
            path = f"{place}.{field['name']}" if place else field["name"]
            inner = value.get(field["name"])
            if inner is not None:
                yield from _faults(inner, field["type"], path)
            elif not field["nullable"]:
                yield f"missing field: {path}"
    elif (name == "array" and isinstance(value, list)) or (name == "map" and isinstance(value, dict)):
        element, may_be_null = (
            (kind["elementType"], kind["containsNull"])
            if name == "array"
            else (kind["valueType"], kind["valueContainsNull"])
        )
        for key, inner in enumerate(value) if isinstance(value, list) else value.items():
            if inner is not None:
                yield from _faults(inner, element, f"{place}[{key}]")
            elif not may_be_null:
                yield f"missing field: {place}[{key}]"
    elif isinstance(kind, Mapping) or not _fits(value, name):
        yield f"wrong type: {place} is {_shown(value)} where {name} must be"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_BITS = {"short": 16, "integer": 32, "long": 64}


def _fits(value: object, name: str) -> bool:
    if name in _BITS:
        most = 2 ** (_BITS[name] - 1)
        return type(value) is int and -most <= value < most
    if name.startswith("decimal"):
        return _fits_decimal(value, name)
    check = _CHECKS.get(name)
    return check is None or check(value)


def _fits_decimal(value: object, name: str) -> bool:
    if not _is_number(value):
        return False
    precision, _, scale = name.removeprefix("decimal(").rstrip(")").partition(",")
    return abs(Decimal(str(value))) < Decimal(10) ** (int(precision) - int(scale))


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def _reads(read: Callable[[str], object]) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if not isinstance(value, str):
            return type(value) is int
        try:
            read(value)
        except ValueError:
            return False
        return True

    return check


_CHECKS: dict[str, Callable[[object], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "double": lambda value: isinstance(value, float) or type(value) is int or value in ("NaN", "Infinity", "-Infinity"),
    "float": lambda value: isinstance(value, float) or type(value) is int or value in ("NaN", "Infinity", "-Infinity"),
    "timestamp": _reads(datetime.fromisoformat),
    "timestamp_ntz": _reads(datetime.fromisoformat),
    "date": _reads(date.fromisoformat),
    "binary": _reads(lambda text: base64.b64decode(text, validate=True)),
}
