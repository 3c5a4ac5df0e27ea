"""The properties of a message as one text: ``name U+0001 value U+0002``, again and again."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["decode_properties", "encode_properties"]

_NAME_END = "\x01"
_VALUE_END = "\x02"


def encode_properties(properties: Mapping[str, str]) -> str:
    """The text of all properties, in order, each with its separator, the last one too.

    >>> encode_properties({"TAGS": "paid", "a=b": "c=d"})
    'TAGS\\x01paid\\x02a=b\\x01c=d\\x02'
    """
    return "".join([f"{name}{_NAME_END}{value}{_VALUE_END}" for name, value in properties.items()])


def decode_properties(text: str) -> dict[str, str]:
    """Read the text back. As Java does it: no last separator is needed, a pair without name or value is left out,
    and of two equal names the last one counts.

    >>> decode_properties("TAGS\\x01paid\\x02empty\\x01\\x02lonely\\x02a\\x01b=\\x01c")
    {'TAGS': 'paid', 'a': 'b=\\x01c'}
    """
    found: dict[str, str] = {}
    for pair in text.split(_VALUE_END):
        name, _, value = pair.partition(_NAME_END)
        if name and value:
            found[name] = value
    return found
