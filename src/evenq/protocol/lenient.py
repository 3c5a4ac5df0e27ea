"""Reading what fastjson writes: almost JSON, with unquoted numbers and whole objects as keys.

The Java broker answers some requests with maps whose keys are numbers (``{0:"127.0.0.1:10911"}``) or objects
(``{{"topic":"t","queueId":0}:{…}}``). :func:`loads` reads them; a key that is an object comes back as its JSON text.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from evenq.errors import ProtocolError

__all__ = ["loads"]

_SPACE = " \t\r\n"
_scalar = json.JSONDecoder().raw_decode


def loads(data: bytes | str) -> Any:
    """Parse JSON, strictly first (fast), then as fastjson writes it.

    >>> loads(b'{0:"a",{"q":1}:{"x":[{2:3}]}}')
    {'0': 'a', '{"q":1}': {'x': [{'2': 3}]}}
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:
        pass
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        value, at = _value(text, _skip(text, 0), 0)
        if _skip(text, at) != len(text):
            raise ProtocolError(f"text after the end of JSON at {at}: {text[at : at + 40]!r}")
        return value
    except (IndexError, ValueError) as error:
        raise ProtocolError(f"neither JSON nor what fastjson writes ({error}): {data[:120]!r}") from None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > 64:
        raise ProtocolError("JSON nested deeper than 64 levels")
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] == "[":
        return _array(text, at, depth)
    return _scalar(text, at)


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        start = at
        key, at = _value(text, at, depth + 1)
        name = key if isinstance(key, str) else text[start:at]
        at = _skip(text, at)
        if text[at] != ":":
            raise ProtocolError(f"no ':' after a key at {at}: {text[start : start + 40]!r}")
        found[name], at = _value(text, _skip(text, at + 1), depth + 1)
        at = _skip(text, at)
        if text[at] == "}":
            return found, at + 1
        if text[at] != ",":
            raise ProtocolError(f"neither ',' nor '}}' at {at}: {text[at : at + 40]!r}")
        at = _skip(text, at + 1)


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _skip(text, at + 1)
    if text[at] == "]":
        return found, at + 1
    while True:
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _skip(text, at)
        if text[at] == "]":
            return found, at + 1
        if text[at] != ",":
            raise ProtocolError(f"neither ',' nor ']' at {at}: {text[at : at + 40]!r}")
        at = _skip(text, at + 1)
