"""The common part of all typed headers: strings on the wire, values in Python.

A header class only lists its fields. Wire names are the camel case of the Python names; a field without a default
must be there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

import msgspec

from evenq.errors import ProtocolError
from evenq.protocol.wire import Int32, Int64, Wire

__all__ = ["BrokerRequest", "Header", "Int32", "Int64", "QueueRequest", "TopicRequest"]

# Java writes booleans in lower case; everything else reads the same in both languages.
_WRITERS = {bool: ("false", "true").__getitem__}

_FIELD = re.compile(r"`\$\.([^`]+)`|field `([^`]+)`")


class Header(Wire, gc=False):
    """The fields of one kind of request or response.

    >>> class Seek(Header):
    ...     queue_id: Int32
    ...     is_force: bool = False
    ...     clock: Int64 | None = None
    >>> Seek(queue_id=3).to_ext()
    {'queueId': '3', 'isForce': 'false'}
    >>> Seek.from_ext({"queueId": "3", "isForce": "true", "unknown": "is ignored"})
    Seek(queue_id=3, is_force=True, clock=None)
    """

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the header fields of a command. What is missing or wrong is a ProtocolError that names it."""
        try:
            return msgspec.convert(ext, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ProtocolError(_explain(cls.__name__, ext, error)) from None

    def to_ext(self) -> dict[str, str]:
        """The header fields of a command; a field that is None is left out."""
        return {
            name: _WRITERS.get(value.__class__, str)(value)
            for name, value in zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
            if value is not None
        }


class BrokerRequest(Header):
    """A request that names the broker it is for. A proxy passes it on to that one, and refuses it without a name."""

    broker_name: str | None = msgspec.field(default=None, name="bname")


class TopicRequest(BrokerRequest):
    """A request about a topic."""

    topic: str


class QueueRequest(TopicRequest):
    """A request about one queue of a topic."""

    queue_id: Int32


def _explain(header: str, ext: Mapping[str, str], error: msgspec.ValidationError) -> str:
    found = _FIELD.search(str(error))
    name = (found[1] or found[2]) if found else ""
    if name not in ext:
        return f"{header}: the field {name!r} is missing; the command has {sorted(ext)}"
    reason = str(error).partition(" - at ")[0]
    return f"{header}: the field {name!r} is {ext[name]!r}: {reason[0].lower()}{reason[1:]}"
