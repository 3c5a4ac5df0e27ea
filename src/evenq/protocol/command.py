"""One command of the remoting protocol, and its two header formats.

A frame is ``length:4 | serialize type:1, header length:3 | header | body``; the length counts what follows it.
The header is JSON (every client's default) or RocketMQ's own binary form. Neither is ever mixed in one answer:
a server answers in the format that it was asked in.
"""

from __future__ import annotations

import struct
from typing import Any, Literal

import msgspec

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol.lenient import loads
from evenq.protocol.wire import Int32

__all__ = ["LANGUAGES", "ONEWAY", "RESPONSE", "VERSION", "Command", "Serialize", "frame_parts"]

Serialize = Literal["JSON", "ROCKETMQ"]

# The place of 5.4.0 in Java's list of versions: what a peer may expect of us.
VERSION = 493

RESPONSE = 1
ONEWAY = 2

# Java's LanguageCode, in the order of its codes.
LANGUAGES = tuple("JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS".split())
_LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_OTHER = LANGUAGES.index("OTHER")

_MAX_HEADER = 0xFFFFFF
_BINARY_MARK = 1 << 24

_PREFIX = struct.Struct(">II")
_BINARY = struct.Struct(">hBhii")
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">I")


class _JsonHeader(msgspec.Struct, rename={"ext": "extFields", "serialize": "serializeTypeCurrentRPC"}):
    """The JSON header, its fields in the order in which the Java client writes them."""

    code: Int32
    ext: dict[str, str] | None = None
    flag: Int32 = 0
    language: str = "JAVA"
    opaque: Int32 = 0
    remark: str | msgspec.UnsetType | None = msgspec.UNSET
    serialize: str = "JSON"
    version: Int32 = 0


_decode_json = msgspec.json.Decoder(_JsonHeader).decode
_encode_json = msgspec.json.Encoder().encode


def frame_parts(header: bytes, body: bytes, mark: int = 0) -> tuple[bytes, bytes, bytes]:
    """A frame in pieces: what stands before the header, the header, which is JSON unless ``mark`` says so, the body."""
    return _PREFIX.pack(4 + len(header) + len(body), mark | len(header)), header, body


class Command(msgspec.Struct, gc=False):
    """A request or a response.

    ``ext`` holds the header fields as strings; :mod:`evenq.protocol.headers` gives them types.

    >>> Command.decode(Command(105, ext={"topic": "orders"}).encode()).ext
    {'topic': 'orders'}
    """

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = VERSION
    remark: str | None = None
    ext: dict[str, str] = {}
    body: bytes = b""
    language: str = "PYTHON"
    # the header format it came in; an answer goes out in the same one
    serialize: Serialize = "JSON"

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)

    def reply(
        self,
        code: int = 0,
        *,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> Command:
        """The response to this request: same opaque, same header format."""
        return Command(
            code,
            opaque=self.opaque,
            flag=RESPONSE,
            remark=remark,
            ext=ext if ext is not None else {},
            body=body,
            serialize=self.serialize,
        )

    def encode(self, serialize: Serialize | None = None) -> bytes:
        """The whole frame, length included."""
        return b"".join(self.parts(serialize))

    def parts(self, serialize: Serialize | None = None) -> tuple[bytes, bytes, bytes]:
        """The same in pieces, for who sends many: a large body is then not copied twice."""
        serialize = serialize or self.serialize
        header = self.json_header() if serialize == "JSON" else self._binary_header()
        if len(header) > _MAX_HEADER:
            raise ArgumentError("ext", f"{len(header)} bytes", "header fields must stay under 16 MiB; use the body")
        return frame_parts(header, self.body, 0 if serialize == "JSON" else _BINARY_MARK)

    def json_header(self) -> bytes:
        """The header alone, in the format that is every client's default."""
        return _encode_json(
            _JsonHeader(
                self.code,
                self.ext,
                self.flag,
                self.language,
                self.opaque,
                msgspec.UNSET if self.remark is None else self.remark,
                "JSON",
                self.version,
            )
        )

    def _binary_header(self) -> bytes:
        language = _LANGUAGE_CODES.get(self.language, _OTHER)
        try:
            parts = [_BINARY.pack(self.code, language, self.version, self.opaque, self.flag)]
        except struct.error:
            # the pop requests have such codes: they cannot be sent this way at all
            remedy = "a ROCKETMQ header has 16 bits for code and version and 32 for opaque and flag; encode it as JSON"
            raise ArgumentError("code", self.code, remedy) from None
        remark = (self.remark or "").encode()
        parts += [_INT.pack(len(remark)), remark]
        fields = []
        for key, value in self.ext.items():
            name, content = key.encode(), value.encode()
            fields += [_SHORT.pack(len(name)), name, _INT.pack(len(content)), content]
        parts += [_INT.pack(sum(map(len, fields))), *fields]
        return b"".join(parts)

    @classmethod
    def decode(cls, frame: bytes | bytearray | memoryview) -> Command:
        """Read one whole frame, length included."""
        frame = bytes(frame)
        if len(frame) < 8:
            raise ProtocolError(f"a frame of {len(frame)} bytes: it must have at least 8")
        return cls.decode_at(frame, 0, len(frame))

    @classmethod
    def decode_at(cls, data: bytes, at: int, end: int) -> Command:
        """Read the frame of at least 8 bytes that lies in ``data`` from ``at`` to ``end``."""
        length, mark = _PREFIX.unpack_from(data, at)
        header_at = at + 8
        body_at = header_at + (mark & 0xFFFFFF)
        if length != end - at - 4 or body_at > end:
            size = mark & 0xFFFFFF
            raise ProtocolError(f"a frame of {end - at} bytes that says length {length} and header length {size}")
        kind = mark >> 24
        if kind == 0:
            return cls._from_json(data[header_at:body_at], data[body_at:end])
        if kind == 1:
            return cls._from_binary(data[header_at:body_at], data[body_at:end])
        raise ProtocolError(f"header format {kind} is not known: 0 (JSON) and 1 (ROCKETMQ) are")

    @classmethod
    def _from_json(cls, header: bytes, body: bytes) -> Command:
        try:
            h = _decode_json(header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            h = _read_lenient(header)
        remark = None if h.remark is msgspec.UNSET else h.remark
        return cls(h.code, h.opaque, h.flag, h.version, remark, h.ext or {}, body, h.language, "JSON")

    @classmethod
    def _from_binary(cls, header: bytes, body: bytes) -> Command:
        try:
            code, language, version, opaque, flag = _BINARY.unpack_from(header)
            at = _BINARY.size
            remark, at = _read_text(header, at, _INT)
            (size,) = _INT.unpack_from(header, at)
            at += 4
            if at + size > len(header):
                raise ProtocolError(f"header fields of {size} bytes in a header of {len(header)}")
            end = at + size
            ext: dict[str, str] = {}
            while at < end:
                key, at = _read_text(header, at, _SHORT)
                ext[key], at = _read_text(header, at, _INT)
        except (struct.error, UnicodeDecodeError) as error:
            raise ProtocolError(f"a ROCKETMQ header that cannot be read: {error}") from None
        name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
        return cls(code, opaque, flag, version, remark or None, ext, body, name, "ROCKETMQ")


def _read_text(data: bytes, at: int, size: struct.Struct) -> tuple[str, int]:
    (length,) = size.unpack_from(data, at)
    at += size.size
    if at + length > len(data):
        raise ProtocolError(f"a text of {length} bytes where {len(data) - at} are left")
    return data[at : at + length].decode(), at + length


def _read_lenient(header: bytes) -> _JsonHeader:
    """A header that is not quite JSON, or has numbers where strings belong (other clients write such)."""
    try:
        raw: Any = loads(header)
        ext = raw.get("extFields")
        if isinstance(ext, dict):
            raw["extFields"] = {str(k): _text(v) for k, v in ext.items() if v is not None}
        return msgspec.convert(raw, _JsonHeader, strict=False)
    except (ProtocolError, msgspec.MsgspecError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"a JSON header that cannot be read ({error}): {bytes(header[:120])!r}") from None


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
