"""The common part of all bodies that are JSON."""

from __future__ import annotations

from collections.abc import Generator
from typing import Self

import msgspec

from evenq.errors import ProtocolError
from evenq.protocol.lenient import dump_pieces, dumps, loads, read_queue
from evenq.protocol.wire import Wire

__all__ = ["Body"]


class Body(Wire):
    """A body that Java writes and reads with fastjson: ``encode`` and ``decode`` go both ways.

    A subclass lists its fields. What is unknown is ignored, and every field that Java may leave out has a default.
    """

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a body. What cannot be read is a ProtocolError that names the body and the place in it."""
        try:
            value = cls.prepared(_without_nulls(loads(data, read_object=read_queue)))
            return msgspec.convert(value, cls, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ProtocolError(f"{cls.__name__}: {error}: {data[:120]!r}") from None

    @classmethod
    def prepared(cls, value: object) -> object:
        """The JSON value that came, as the fields want it: for peers that write a field in another way than Java."""
        return value

    def encode(self, *, standard: bool = False) -> bytes:
        """The JSON that Java reads; ``standard`` quotes keys that are numbers."""
        return dumps(self, standard=standard)

    def encode_pieces(self, *, standard: bool = False) -> Generator[None, None, bytes]:
        """The same in pieces, for whoever must do something else in between: it yields now and then."""
        return dump_pieces(self, standard=standard)


def _without_nulls(value: object) -> object:
    # fastjson leaves nulls out, other writers do not: both mean "use the default"
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
