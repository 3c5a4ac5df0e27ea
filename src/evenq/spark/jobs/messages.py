"""Which column or SQL expression of a table becomes which part of a message. Pure: names and types in, SQL out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenq.errors import ArgumentError

__all__ = ["WHOLE_ROW", "MessageColumns", "conversions"]

# The value where none is named: all columns as JSON, also those that are null.
WHOLE_ROW = "to_json(struct(*), map('ignoreNullFields', 'false'))"

_NESTED = ("struct<", "map<", "array<")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumns:
    """The parts of a message, each a column of the table or a SQL expression over its columns.

    >>> MessageColumns(keys="order_id", properties={"shop": "upper(shop)"}).selections()["properties"]
    "map('shop', cast((upper(shop)) as string))"
    """

    value: str = WHOLE_ROW
    keys: str | None = None
    tags: str | None = None
    sharding_key: str | None = None
    # each property by its name
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: str | None = None
    deliver_at: str | None = None

    def selections(self) -> dict[str, str]:
        """The expression of each column of the sink that there will be."""
        found = {
            "value": self.value,
            "keys": self.keys,
            "tags": self.tags,
            "sharding_key": self.sharding_key,
            "properties": self._map() if self.properties else None,
            "delay_level": self.delay_level,
            "deliver_at": self.deliver_at,
        }
        return {name: expression for name, expression in found.items() if expression is not None}

    def _map(self) -> str:
        pairs = (f"{_literal(name)}, cast(({text}) as string)" for name, text in self.properties.items())
        return f"map({', '.join(pairs)})"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def conversions(types: Mapping[str, str]) -> list[str]:
    """What to select so that columns with these types become what the sink takes.

    >>> conversions({"value": "struct<a:int>", "keys": "bigint"})
    ['to_json(value) as value', 'cast(keys as string) as keys']
    """
    return [f"{_converted(name, kind)} as {name}" for name, kind in types.items()]


def _converted(name: str, kind: str) -> str:
    match name:
        case "value":
            if kind.startswith(_NESTED):
                return f"to_json({name})"
            return name if kind == "binary" else f"cast({name} as string)"
        case "keys" if kind.startswith("array<"):
            return f"cast({name} as array<string>)"
        case "delay_level":
            if kind not in _WHOLE:
                raise ArgumentError(name, kind, "give a whole number: RocketMQ's levels, 1 is 1 s and 18 is 2 h")
            return f"cast({name} as int)"
        case "deliver_at":
            if kind not in _TIMES:
                raise ArgumentError(name, kind, "give a timestamp, such as timestamp_millis(due) or to_timestamp(due)")
            return f"cast({name} as timestamp)"
        case "properties":
            return name
    if kind.startswith(_NESTED) or kind == "binary":
        raise ArgumentError(name, kind, f"give a text{', or an array of texts' if name == 'keys' else ''}")
    return f"cast({name} as string)"
