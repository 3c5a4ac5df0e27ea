"""Requests of which very many are alike: what they have in common is encoded once."""

from __future__ import annotations

from collections.abc import Iterable

from evenq.protocol.command import Command, frame_parts

__all__ = ["Template"]


class Template:
    """Requests without a body that are ``like`` one but for the numbers in some header fields.

    >>> pulls = Template(Command(11, ext={"topic": "t"}), "queueOffset", "maxMsgNums")
    >>> made = Command.decode(pulls.frames([(100, 32, 7)]))
    >>> made.opaque, made.ext
    (7, {'topic': 't', 'queueOffset': '100', 'maxMsgNums': '32'})
    """

    __slots__ = ("_common", "_fields", "_header", "code")

    def __init__(self, like: Command, *fields: str) -> None:
        self.code = like.code
        self._common = {name: text for name, text in like.ext.items() if name not in fields}
        self._fields = fields
        ext = {_escaped(name): _escaped(text) for name, text in self._common.items()}
        header = Command(like.code, ext=ext | {_escaped(field): "%d" for field in fields}).json_header()
        # the fields come first, then the number of the request
        self._header = header.replace(b'"opaque":0', b'"opaque":%d')

    def frames(self, requests: Iterable[tuple[int, ...]]) -> bytes:
        """The whole frames of many requests, each given by the values of its fields and its number."""
        header = self._header
        return b"".join([part for numbers in requests for part in frame_parts(header % numbers, b"")])

    def command(self, *values: int) -> Command:
        """The same as a command, for who must look at it or add to it."""
        more = zip(self._fields, map(str, values), strict=True)
        return Command(self.code, ext={**self._common, **dict(more)})


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
