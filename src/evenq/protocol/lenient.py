"""What fastjson makes of JSON: unquoted numbers and whole objects as keys, no nulls, names in order.

The Java broker answers some requests with maps whose keys are numbers (``{0:"127.0.0.1:10911"}``) or objects
(``{{"brokerName":"b","queueId":0,"topic":"t"}:{…}}``). :func:`loads` reads them, :func:`dumps` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from evenq.errors import ProtocolError
from evenq.model import MessageQueue

__all__ = ["dumps", "loads"]

_SPACE = " \t\r\n"
_MAX_DEPTH = 64
_QUEUE = frozenset(("topic", "brokerName", "queueId"))
_scalar = json.JSONDecoder().raw_decode


def loads(data: bytes | str) -> Any:
    """Parse JSON, strictly first (fast), then as fastjson writes it. A queue comes back as one.

    >>> loads(b'{0:"a",{"x":1}:[{2:3}]}')
    {'0': 'a', '{"x":1}': [{'2': 3}]}
    >>> loads(b'{{"brokerName":"b","queueId":7,"topic":"t"}:5}')
    {MessageQueue(topic='t', broker='b', queue_id=7): 5}
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        try:
            return json.loads(text, object_hook=_queue_or_object)
        except json.JSONDecodeError:
            value, at = _value(text, _skip(text, 0), 0)
        if _skip(text, at) != len(text):
            raise ProtocolError(f"text after the end of JSON at {at}: {text[at : at + 40]!r}")
        return value
    except (IndexError, ValueError, RecursionError) as error:
        raise ProtocolError(f"neither JSON nor what fastjson writes ({error}): {data[:120]!r}") from None


def _queue_or_object(found: dict[str, Any]) -> Any:
    if found.keys() == _QUEUE and isinstance(found["queueId"], int):
        return MessageQueue(found["topic"], found["brokerName"], found["queueId"])
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _MAX_DEPTH:
        raise ProtocolError(f"JSON nested deeper than {_MAX_DEPTH} levels")
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] == "[":
        return _array(text, at, depth)
    return _scalar(text, at)


def _object(text: str, at: int, depth: int) -> tuple[Any, int]:
    found: dict[Any, Any] = {}
    at = _skip(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        start = at
        key, at = _value(text, at, depth + 1)
        name = key if isinstance(key, str | MessageQueue) else text[start:at]
        at = _skip(text, at)
        if text[at] != ":":
            raise ProtocolError(f"no ':' after a key at {at}: {text[start : start + 40]!r}")
        found[name], at = _value(text, _skip(text, at + 1), depth + 1)
        at = _skip(text, at)
        if text[at] == "}":
            return _queue_or_object(found), at + 1
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


def dumps(value: object, *, standard: bool = False) -> bytes:
    """Write a value as fastjson does; ``standard`` quotes every key, for readers that know JSON only.

    >>> dumps({0: "a", MessageQueue("t", "b", 7): None, "set": {2, 1}})
    b'{0:"a","set":[1,2]}'
    >>> dumps({MessageQueue("t", "b", 7): 5})
    b'{{"brokerName":"b","queueId":7,"topic":"t"}:5}'
    """
    parts: list[bytes] = []
    _write(value, parts.append, _standard_key if standard else _fastjson_key)
    return b"".join(parts)


_Put = Callable[[bytes], None]
_encode = msgspec.json.Encoder().encode


def _write(value: Any, put: _Put, write_key: Callable[[Any], bytes]) -> None:
    match value:
        case MessageQueue():
            put(_queue(value))
        case msgspec.Struct():
            fields = [(name, getattr(value, attribute)) for name, attribute in _fields(type(value))]
            _write_object(fields, put, write_key)
        case Mapping():
            _write_object(value.items(), put, write_key)
        case Enum():
            put(_encode(value.value))
        case list() | tuple():
            _write_array(value, put, write_key)
        case set() | frozenset():
            _write_array(sorted(value), put, write_key)
        case _:
            put(_encode(value))


def _write_object(items: Iterable[tuple[Any, Any]], put: _Put, write_key: Callable[[Any], bytes]) -> None:
    mark = b"{"
    for key, value in items:
        if value is None:
            continue
        put(mark)
        put(write_key(key))
        put(b":")
        _write(value, put, write_key)
        mark = b","
    put(b"}" if mark == b"," else b"{}")


def _write_array(items: Iterable[Any], put: _Put, write_key: Callable[[Any], bytes]) -> None:
    mark = b"["
    for value in items:
        put(mark)
        _write(value, put, write_key)
        mark = b","
    put(b"]" if mark == b"," else b"[]")


def _queue(queue: MessageQueue) -> bytes:
    return _encode({"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic})


def _fastjson_key(key: object) -> bytes:
    return _queue(key) if isinstance(key, MessageQueue) else _encode(key)


def _standard_key(key: object) -> bytes:
    return _encode(str(key))


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
