"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal

import msgspec

from evenq.model import MessageQueue

__all__ = ["cell", "glance", "plain", "print_json", "print_table"]

# What is not a screen has no edge to break lines at.
_ENDLESS = 10_000
# Letters of a body in a list of messages.
_GLANCE = 60


def print_json(value: object) -> None:
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, footer: Sequence[object] = ()) -> None:
    """A table; columns of numbers stand to the right."""
    # here, so that commands that print JSON need not wait for it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, show_footer=bool(footer))
    totals = [*footer, *[""] * (len(columns) - len(footer))]
    for name, total, values in zip(
        columns, totals, zip(*lines, strict=True) if lines else [()] * len(columns), strict=True
    ):
        justify: Literal["left", "right"] = "right" if values and all(map(_is_number, values)) else "left"
        table.add_column(name, Text(cell(total)), justify=justify, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell(value)) for value in line))
    Console(width=None if sys.stdout.isatty() else _ENDLESS).print(table)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(value: object) -> str:
    """A value as people read it. What would move a terminal's cursor is not let through.

    >>> cell(1234), cell(None), cell(("a", "b")), cell("\\x1b[2J")
    ('1,234', '-', 'a, b', '?[2J')
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return f"{value.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
        case MessageQueue():
            return f"{value.broker}:{value.queue_id}"
        case bytes():
            return cell(_text_of(value) or f"{len(value)} bytes, not text")
        case str():
            return "".join(letter if letter.isprintable() else "?" for letter in value)
        case Mapping():
            return ", ".join(f"{cell(name)}={cell(item)}" for name, item in value.items())
        case tuple() | list():
            return ", ".join(map(cell, value))
        case _:
            return cell(str(value))


def glance(body: bytes) -> str:
    """The beginning of a body, for a line of a list.

    >>> glance(b"short"), len(glance(b"x" * 1000))
    ('short', 60)
    """
    text = cell(body)
    return text if len(text) <= _GLANCE else f"{text[: _GLANCE - 1]}…"


def plain(value: object) -> Any:
    """A value as JSON has it: structs with their computed properties, times in ISO 8601, bodies as text or base64."""
    match value:
        case MessageQueue():
            return {"topic": value.topic, "broker": value.broker, "queue_id": value.queue_id}
        # before structs: the properties of a message are both
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case msgspec.Struct():
            computed = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
            names = [name for name in (*value.__struct_fields__, *computed) if not name.startswith("_")]
            return {name: plain(getattr(value, name)) for name in names}
        case datetime():
            return value.isoformat()
        case Enum():
            return value.name
        case bytes():
            text = _text_of(value)
            return {"base64": base64.b64encode(value).decode()} if text is None else text
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
