"""Cutting a stream of bytes into frames. Takes any split of the bytes; buffers no frame over the limit."""

from __future__ import annotations

import struct

from evenq.errors import ProtocolError
from evenq.protocol.command import Command

__all__ = ["DEFAULT_LIMIT", "FrameParser"]

DEFAULT_LIMIT = 16 * 1024 * 1024

_LENGTH = struct.Struct(">I")


class FrameParser:
    """An incremental parser.

    >>> parser = FrameParser()
    >>> frame = Command(105, ext={"topic": "t"}).encode()
    >>> parser.feed(frame[:7]), [c.code for c in parser.feed(frame[7:])]
    ([], [105])
    """

    __slots__ = ("_buffer", "_need", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._buffer = bytearray()
        # bytes that must be there before the next frame is whole: spares looking again at every small piece
        self._need = 4

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Take the next bytes, give the commands that are whole now. After a ProtocolError the stream is dead."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return []
            data = self._buffer
        whole = data if isinstance(data, bytes) else bytes(data)
        commands: list[Command] = []
        at, end = 0, len(whole)
        self._need = 4
        while end - at >= 4:
            stop = at + 4 + _LENGTH.unpack_from(whole, at)[0]
            if stop - at > self.limit:
                raise ProtocolError(
                    f"a frame of {stop - at} bytes is over the limit of {self.limit}: {whole[at : at + 16]!r}"
                )
            if stop > end:
                self._need = stop - at
                break
            if stop - at < 8:
                raise ProtocolError(f"a frame of {stop - at} bytes: it must have at least 8")
            commands.append(Command.decode_at(whole, at, stop))
            at = stop
        self._buffer = bytearray(whole[at:])
        return commands
