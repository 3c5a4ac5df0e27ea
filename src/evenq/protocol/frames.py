"""Cutting a stream of bytes into frames. Takes any split of the bytes; buffers no frame over the limit."""

from __future__ import annotations

import struct

from evenq.errors import ProtocolError
from evenq.protocol.command import Command

__all__ = ["DEFAULT_LIMIT", "Frame", "FrameParser"]

# Bytes that hold a whole frame, where it begins and where it ends: the arguments of :meth:`Command.decode_at`.
Frame = tuple[bytes, int, int]

DEFAULT_LIMIT = 16 * 1024 * 1024

_LENGTH = struct.Struct(">I")
# its length, and that of its header
_LEAST = 8


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
        # the beginning of a frame that is not all there yet
        self._buffer = bytearray()
        # how many bytes of it must be there before there is something to do
        self._need = _LENGTH.size

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    @property
    def needed(self) -> int:
        """How many bytes the frame in the buffer will have, as far as is known."""
        return self._need if self._buffer else 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Take the next bytes, give the commands that are whole now. After a ProtocolError the stream is dead."""
        return [Command.decode_at(*frame) for frame in self.cut(data)]

    def cut(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """The same without decoding: where the frames are that are whole now."""
        whole = data if isinstance(data, bytes) else bytes(data)
        frames: list[Frame] = []
        at = self._complete(whole, frames) if self._buffer else 0
        end = len(whole)
        while end - at >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(whole, at)[0]
            if not _LEAST <= size <= self.limit:
                raise self._odd(size, whole, at)
            if at + size > end:
                self._need = size
                break
            frames.append((whole, at, at + size))
            at += size
        if at < end:
            self._buffer += whole[at:]
        return frames

    def _complete(self, data: bytes, frames: list[Frame]) -> int:
        """Add what the frame in the buffer lacks, and nothing else; how many bytes that were."""
        at = 0
        buffer = self._buffer
        while (missing := self._need - len(buffer)) <= len(data) - at:
            buffer += data[at : at + missing]
            at += missing
            if self._need == len(buffer) > _LENGTH.size:
                frames.append((bytes(buffer), 0, len(buffer)))
                self._buffer, self._need = bytearray(), _LENGTH.size
                return at
            self._need = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
            if not _LEAST <= self._need <= self.limit:
                raise self._odd(self._need, buffer, 0)
        buffer += data[at:]
        return len(data)

    def _odd(self, size: int, data: bytes | bytearray, at: int) -> ProtocolError:
        if size < _LEAST:
            return ProtocolError(f"a frame of {size} bytes: it must have at least {_LEAST}")
        return ProtocolError(f"a frame of {size} bytes is over the limit of {self.limit}: {data[at : at + 16]!r}")
