import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol import compression
from evenq.protocol.compression import Compression, compress, decompress
from evenq.protocol.flags import SysFlag

METHODS: list[Compression] = ["ZLIB", "LZ4", "ZSTD"]


@given(st.binary(max_size=20_000), st.sampled_from(METHODS))
def test_there_and_back(body: bytes, method: Compression) -> None:
    packed, flags = compress(body, method)
    assert flags & SysFlag.COMPRESSED
    assert decompress(packed, flags) == body


def test_no_bits_mean_zlib() -> None:
    assert decompress(zlib.compress(b"old"), SysFlag.COMPRESSED) == b"old"


def test_a_stream_without_its_size() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(b"x" * 100_000) + stream.flush()
    assert decompress(packed, SysFlag.ZSTD) == b"x" * 100_000


@pytest.mark.parametrize("method", METHODS)
def test_damage(method: Compression) -> None:
    packed, flags = compress(bytes(range(256)) * 20, method)
    for broken in (b"", packed[:-1], packed[: len(packed) // 2], b"\x00" + packed, b"junk"):
        with pytest.raises(ProtocolError, match="decompressed"):
            decompress(broken, flags)


@pytest.mark.parametrize("method", METHODS)
def test_a_few_bytes_do_not_fill_the_memory(method: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, flags = compress(bytes(3_000_000), method)
    monkeypatch.setattr(compression, "MAX_BODY", 1_000_000)
    with pytest.raises(ProtocolError, match="more than 1000000"):
        decompress(packed, flags)


def test_an_unknown_type() -> None:
    with pytest.raises(ProtocolError, match="type 5"):
        decompress(b"", 5 << 8)


def test_an_unknown_method() -> None:
    with pytest.raises(ArgumentError, match="ZLIB, LZ4, ZSTD"):
        compress(b"", "GZIP")  # type: ignore[arg-type]
