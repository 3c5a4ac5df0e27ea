"""Compressed bodies: zlib, lz4 and zstd, told apart by three bits of ``sys_flag``."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal, NamedTuple

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol.flags import SysFlag

__all__ = [
    "DEFAULT_LEVEL",
    "DEFAULT_THRESHOLD",
    "MAX_BODY",
    "MAX_UNPACKED",
    "UNPACKED_AT_ONCE",
    "Compression",
    "compress",
    "decompress",
]

Compression = Literal["ZLIB", "LZ4", "ZSTD"]

# The Java producer's settings: from how many bytes on a body is compressed, and how hard.
DEFAULT_THRESHOLD = 4096
DEFAULT_LEVEL = 5

# No broker stores so much; a few bytes that would become more are an attack or damage.
MAX_BODY = 256 * 1024 * 1024

# A megabyte of records can become a gigabyte. Who may stop in between stops behind the first number of bytes; who needs
# all at once refuses more than the second.
UNPACKED_AT_ONCE = 64 * 1024 * 1024
MAX_UNPACKED = 1024 * 1024 * 1024

# A slice of compressed zstd this long cannot become more than MAX_BODY.
_SLICE = 4096


def _whole(body: bytes, ended: bool) -> bytes:
    if len(body) > MAX_BODY:
        raise ValueError(f"it becomes more than {MAX_BODY} bytes")
    if not ended:
        raise ValueError("it is cut off")
    return body


def _zlib_decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    return _whole(stream.decompress(data, MAX_BODY + 1), stream.eof)


def _lz4_compress(data: bytes, level: int) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(data, compression_level=level)
    return compressed


def _lz4_decompress(data: bytes) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    return _whole(stream.decompress(data, MAX_BODY + 1), stream.eof)


def _zstd_compress(data: bytes, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def _zstd_decompress(data: bytes) -> bytes:
    import zstandard

    stream = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(data), _SLICE):
            parts.append(stream.decompress(data[at : at + _SLICE]))
            size += len(parts[-1])
            if stream.eof or size > MAX_BODY:
                break
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    return _whole(b"".join(parts), stream.eof)


class _Method(NamedTuple):
    flag: SysFlag
    compress: Callable[[bytes, int], bytes]
    decompress: Callable[[bytes], bytes]


_METHODS: dict[str, _Method] = {
    "ZLIB": _Method(SysFlag.ZLIB, zlib.compress, _zlib_decompress),
    "LZ4": _Method(SysFlag.LZ4, _lz4_compress, _lz4_decompress),
    "ZSTD": _Method(SysFlag.ZSTD, _zstd_compress, _zstd_decompress),
}
# without any of the three bits it is zlib: so were all bodies compressed before there were others
_READERS = {int(method.flag): method.decompress for method in _METHODS.values()} | {0: _zlib_decompress}
_COMPRESSION = int(SysFlag.COMPRESSION)


def checked_compression(method: Compression, *, argument: str = "compression") -> Compression:
    """A way to compress that there is."""
    if not isinstance(method, str) or method not in _METHODS:
        raise ArgumentError(argument, method, f"give one of {', '.join(_METHODS)}")
    return method


def compress(body: bytes, method: Compression = "ZLIB", level: int = DEFAULT_LEVEL) -> tuple[bytes, int]:
    """The compressed body, and the bits of ``sys_flag`` that say so.

    >>> packed, flags = compress(b"even " * 1000, "ZSTD")
    >>> len(packed) < 100, decompress(packed, flags) == b"even " * 1000
    (True, True)
    """
    chosen = _METHODS[checked_compression(method, argument="method")]
    return chosen.compress(body, level), int(SysFlag.COMPRESSED | chosen.flag)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was before :func:`compress`. Damage is a ProtocolError."""
    kind = sys_flag & _COMPRESSION
    reader = _READERS.get(kind)
    if reader is None:
        raise ProtocolError(f"a body compressed in a way that is not known: type {kind >> 8} in sys_flag {sys_flag}")
    try:
        return reader(body)
    except (ValueError, RuntimeError, EOFError, zlib.error) as error:
        raise ProtocolError(f"a body of {len(body)} bytes that cannot be decompressed: {error}") from None
