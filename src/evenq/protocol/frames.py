"""Cutting a stream of bytes into frames. Takes any split of the bytes; buffers no frame over the limit."""

from __future__ import annotations

from evenq.errors import ProtocolError
from evenq.protocol.command import Command

__all__ = ["DEFAULT_LIMIT", "FrameParser"]

DEFAULT_LIMIT = 16 * 1024 * 1024


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
            whole = memoryview(self._buffer)
        else:
            whole = memoryview(data)
        commands: list[Command] = []
        at, end = 0, len(whole)
        try:
            self._need = 4
            while end - at >= 4:
                size = 4 + int.from_bytes(whole[at : at + 4], "big")
                if size > self.limit:
                    raise ProtocolError(
                        f"a frame of {size} bytes is over the limit of {self.limit}: {bytes(whole[at : at + 16])!r}"
                    )
                if end - at < size:
                    self._need = size
                    break
                commands.append(Command.decode(whole[at : at + size]))
                at += size
            rest = bytes(whole[at:])
        finally:
            whole.release()
        self._buffer = bytearray(rest)
        return commands
