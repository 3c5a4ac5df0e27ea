"""Options by table: each is a row with a name, a reader of its text, a default and a line about it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenq.errors import ArgumentError

__all__ = ["REQUIRED", "Option", "read_table"]

# The default of an option that must be given.
REQUIRED = "required"

# What stands for the value of a secret wherever it would be shown.
HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name for users, the field that its value goes to, how its text is read, what holds without it.

    The default is a text as a user would give it, ``REQUIRED``, or None for nothing at all.
    """

    name: str
    field: str
    read: Callable[[str], Any]
    default: str | None
    about: str
    secret: bool = False

    def value(self, text: str | None) -> Any:
        if text is None:
            if self.default == REQUIRED:
                raise ArgumentError(self.name, None, f"this option is needed: {self.about}")
            if self.default is None:
                return None
            text = self.default
        shown = HIDDEN if self.secret else text
        try:
            return self.read(text)
        except ArgumentError as error:
            raise ArgumentError(self.name, shown, error.remedy) from None
        except ValueError as error:
            raise ArgumentError(self.name, shown, str(error)) from None


def read_table(
    rows: Sequence[Option], given: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The value of every option by its field. Upper and lower case of names are the same.

    ``elsewhere`` has names in lower case that people bring from other sources, and what to do instead.
    """
    by_name = {row.name.lower(): row for row in rows}
    for name, text in given.items():
        if name.lower() not in by_name:
            raise ArgumentError(name, text, f"there is no such option; {_way_out(name, rows, elsewhere or {})}")
    texts = {name.lower(): text for name, text in given.items()}
    return {row.field: row.value(texts.get(name)) for name, row in by_name.items()}


def _way_out(name: str, rows: Sequence[Option], elsewhere: Mapping[str, str]) -> str:
    if known := elsewhere.get(name.lower()):
        return known
    names = {row.name.lower(): row.name for row in rows}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(sorted(names.values()))}"
