"""What fastjson makes of JSON: unquoted numbers and whole objects as keys, no nulls, names in order.

The Java broker answers some requests with maps whose keys are numbers (``{0:"127.0.0.1:10911"}``) or objects
(``{{"brokerName":"b","queueId":0,"topic":"t"}:{…}}``). :func:`loads` reads them, :func:`dumps` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.protocol.pieces import at_once

__all__ = ["dump_pieces", "dumps", "loads", "read_queue"]

_SPACE = " \t\r\n"
_MAX_DEPTH = 64
_QUEUE = frozenset(("topic", "brokerName", "queueId"))
# Half of a surrogate pair is legal in JSON, but it cannot be written as UTF-8 again, here or by anyone.
_HALF = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
_scalar = json.JSONDecoder().raw_decode

ReadObject = Callable[[dict[Any, Any]], Any]


def loads(data: bytes | str, *, read_object: ReadObject | None = None) -> Any:
    """Parse JSON, strictly first (fast), then as fastjson writes it.

    ``read_object`` may turn each object into something else, such as :func:`read_queue`; a key that is an object and
    stays one comes back as its JSON text.

    >>> loads(b'{0:"a",{"x":1}:[{2:3}]}')
    {'0': 'a', '{"x":1}': [{'2': 3}]}
    >>> loads(b'{{"brokerName":"b","queueId":7,"topic":"t"}:5}', read_object=read_queue)
    {MessageQueue(topic='t', broker='b', queue_id=7): 5}
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        try:
            value = json.loads(text, object_hook=read_object)
        except json.JSONDecodeError:
            value = _Reader(text, read_object).read()
    except (IndexError, ValueError, RecursionError) as error:
        raise ProtocolError(f"neither JSON nor what fastjson writes ({error}): {data[:120]!r}") from None
    if "\\u" in text and _HALF.search(text.replace("\\\\", "")):
        raise ProtocolError(f"JSON with half a surrogate pair: {data[:120]!r}")
    return value


def read_queue(found: dict[Any, Any]) -> Any:
    """An object that has exactly the fields of a queue, as that; any other as it is."""
    if found.keys() == _QUEUE:
        topic, broker, queue_id = found["topic"], found["brokerName"], found["queueId"]
        # of any other types it could not be a key
        if isinstance(topic, str) and isinstance(broker, str) and isinstance(queue_id, int):
            return MessageQueue(topic, broker, queue_id)
    return found


class _Reader:
    """Reads one text as fastjson writes it."""

    __slots__ = ("read_object", "text")

    def __init__(self, text: str, read_object: ReadObject | None) -> None:
        self.text = text
        self.read_object = read_object or (lambda found: found)

    def read(self) -> Any:
        value, at = self._value(self._skip(0), 0)
        at = self._skip(at)
        if at != len(self.text):
            raise self._unexpected("the end", at)
        return value

    def _skip(self, at: int) -> int:
        text = self.text
        while at < len(text) and text[at] in _SPACE:
            at += 1
        return at

    def _unexpected(self, wanted: str, at: int) -> ProtocolError:
        return ProtocolError(f"JSON has {self.text[at : at + 40]!r} at {at} where {wanted} should be")

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        if depth > _MAX_DEPTH:
            raise ProtocolError(f"JSON nested deeper than {_MAX_DEPTH} levels")
        match self.text[at]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._array(at, depth)
            case _:
                return _scalar(self.text, at)

    def _object(self, at: int, depth: int) -> tuple[Any, int]:
        found: dict[Any, Any] = {}
        at = self._skip(at + 1)
        while self.text[at] != "}":
            start = at
            key, at = self._value(at, depth + 1)
            if not isinstance(key, str | MessageQueue):
                key = self.text[start:at]
            at = self._skip(at)
            if self.text[at] != ":":
                raise self._unexpected("':'", at)
            found[key], at = self._value(self._skip(at + 1), depth + 1)
            at = self._next(at, "}")
        return self.read_object(found), at + 1

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self._skip(at + 1)
        while self.text[at] != "]":
            value, at = self._value(at, depth + 1)
            found.append(value)
            at = self._next(at, "]")
        return found, at + 1

    def _next(self, at: int, close: str) -> int:
        """Go over a comma to the next item, or stay at the closing bracket."""
        at = self._skip(at)
        if self.text[at] == ",":
            return self._skip(at + 1)
        if self.text[at] != close:
            raise self._unexpected(f"',' or {close!r}", at)
        return at


def dumps(value: object, *, standard: bool = False) -> bytes:
    """Write a value as fastjson does; ``standard`` quotes every key, for readers that know JSON only.

    >>> dumps({0: "a", MessageQueue("t", "b", 7): None, "set": {2, 1}})
    b'{0:"a","set":[1,2]}'
    >>> dumps({MessageQueue("t", "b", 7): 5})
    b'{{"brokerName":"b","queueId":7,"topic":"t"}:5}'
    """
    return at_once(dump_pieces(value, standard=standard))


def dump_pieces(value: object, *, standard: bool = False) -> Generator[None, None, bytes]:
    """The same, with a break after every so many items of an object or array."""
    parts: list[bytes] = []
    yield from _write(value, parts.append, _standard_key if standard else _fastjson_key)
    return b"".join(parts)


# After so many items there is a break.
_PIECE = 64
_PLAIN = frozenset((str, int, float, bool))

_Put = Callable[[bytes], None]
_encode = msgspec.json.Encoder().encode


def _write(value: Any, put: _Put, write_key: Callable[[Any], bytes]) -> Iterator[None]:
    match value:
        case MessageQueue():
            put(_queue(value))
        case msgspec.Struct():
            fields = [(name, getattr(value, attribute)) for name, attribute in _fields(type(value))]
            yield from _write_object(fields, put, write_key)
        case Mapping():
            yield from _write_object(value.items(), put, write_key)
        case Enum():
            put(_encode(value.value))
        case list() | tuple():
            yield from _write_array(value, put, write_key)
        case set() | frozenset():
            yield from _write_array(sorted(value), put, write_key)
        case _:
            put(_encode(value))


def _write_object(items: Iterable[tuple[Any, Any]], put: _Put, write_key: Callable[[Any], bytes]) -> Iterator[None]:
    mark = b"{"
    for count, (key, value) in enumerate(items, 1):
        if value is None:
            continue
        put(mark)
        put(write_key(key))
        put(b":")
        if type(value) in _PLAIN:
            put(_encode(value))
        else:
            yield from _write(value, put, write_key)
        mark = b","
        if count % _PIECE == 0:
            yield
    put(b"}" if mark == b"," else b"{}")


def _write_array(items: Iterable[Any], put: _Put, write_key: Callable[[Any], bytes]) -> Iterator[None]:
    mark = b"["
    for count, value in enumerate(items, 1):
        put(mark)
        yield from _write(value, put, write_key)
        mark = b","
        if count % _PIECE == 0:
            yield
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
