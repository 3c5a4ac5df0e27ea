"""The columns that messages have as Arrow data: those of the Spark source, in its order. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["SCHEMA", "SCHEMA_WITH_PROPERTIES", "schema"]

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("born_timestamp", pa.timestamp("us", "UTC")),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("value", pa.binary()),
        ("msg_id", pa.string()),
        ("unique_key", pa.string()),
        ("reconsume_times", pa.int32()),
    ]
)
SCHEMA_WITH_PROPERTIES = SCHEMA.append(pa.field("properties", pa.map_(pa.string(), pa.string())))


def schema(include_properties: bool = False, property_columns: Sequence[str] = ()) -> pa.Schema:
    """The columns of a batch: those of the Spark source, in its order.

    ``property_columns`` are properties that have a column of their own, by their names. They come last.
    """
    found = SCHEMA_WITH_PROPERTIES if include_properties else SCHEMA
    return pa.schema([*found, *(pa.field(name, pa.string()) for name in property_columns)])
