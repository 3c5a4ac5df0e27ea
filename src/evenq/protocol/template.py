"""Requests of which very many are alike: what they have in common is encoded once."""

from __future__ import annotations

import struct

import msgspec

from evenq.protocol.command import Command

__all__ = ["Template"]

_PREFIX = struct.Struct(">II").pack
_encode = msgspec.json.encode


class Template:
    """Requests without a body that differ in the numbers of some header fields.

    >>> pulls = Template(Command(11, ext={"topic": "t"}), "queueOffset", "maxMsgNums")
    >>> made = Command.decode(pulls.frame(7, 100, 32))
    >>> made.opaque, made.ext
    (7, {'topic': 't', 'queueOffset': '100', 'maxMsgNums': '32'})
    """

    __slots__ = ("_common", "_fields", "_header", "code")

    def __init__(self, common: Command, *fields: str) -> None:
        self.code = common.code
        self._common = common
        self._fields = fields
        ext = _encode(common.ext)
        before, name, after = (part.replace(b"%", b"%%") for part in common.json_header().partition(b'"extFields":'))
        after = after.removeprefix(ext.replace(b"%", b"%%"))
        numbers = b",".join(_encode(field).replace(b"%", b"%%") + b':"%d"' for field in fields)
        inner = b",".join(part for part in (ext[1:-1].replace(b"%", b"%%"), numbers) if part)
        # the fields come first, then the number of the request
        self._header = before + name + b"{" + inner + b"}" + after.replace(b'"opaque":0', b'"opaque":%d', 1)

    def frame(self, opaque: int, *values: int) -> bytes:
        """The whole frame of a request."""
        header = self._header % (*values, opaque)
        size = len(header)
        return _PREFIX(4 + size, size) + header

    def command(self, *values: int) -> Command:
        """The same as a command, for who must look at it or add to it."""
        more = zip(self._fields, map(str, values), strict=True)
        return Command(self.code, ext={**self._common.ext, **dict(more)})
