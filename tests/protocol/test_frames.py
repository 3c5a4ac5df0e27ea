from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ProtocolError
from evenq.protocol import Command, FrameParser
from tests.protocol.cases import load

FRAMES = [bytes.fromhex(vector["frame"]) for vector in load("remoting")]
STREAM = b"".join(FRAMES)
COMMANDS = [Command.decode(frame) for frame in FRAMES]


def test_whole() -> None:
    parser = FrameParser()
    assert parser.feed(STREAM) == COMMANDS
    assert parser.buffered == 0


def test_byte_by_byte() -> None:
    parser = FrameParser()
    found = [command for at in range(len(STREAM)) for command in parser.feed(STREAM[at : at + 1])]
    assert found == COMMANDS
    assert parser.buffered == 0


@given(st.lists(st.integers(0, len(STREAM)), max_size=30), st.sampled_from([bytes, bytearray, memoryview]))
def test_any_split(cuts: list[int], kind: type) -> None:
    parser = FrameParser()
    bounds = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(bounds)]
    assert [command for piece in pieces for command in parser.feed(kind(piece))] == COMMANDS
    assert parser.buffered == 0


def test_what_was_fed_may_be_used_again() -> None:
    parser = FrameParser()
    buffer = bytearray(STREAM[:20])
    parser.feed(buffer)
    buffer[:] = bytes(20)
    assert parser.feed(STREAM[20:]) == COMMANDS


def test_a_frame_over_the_limit_is_refused_by_its_first_bytes() -> None:
    parser = FrameParser(limit=1000)
    assert parser.feed(b"\0\0\3") == []
    with pytest.raises(ProtocolError, match="1001 bytes is over the limit of 1000"):
        parser.feed(b"\xe5")


def test_a_frame_at_the_limit_passes() -> None:
    frame = Command(1, body=bytes(500)).encode()
    assert len(FrameParser(limit=len(frame)).feed(frame)) == 1
    with pytest.raises(ProtocolError, match="limit"):
        FrameParser(limit=len(frame) - 1).feed(frame)


def test_another_protocol_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="GET / HTTP"):
        FrameParser().feed(b"GET / HTTP/1.1\r\n")


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_nonsense_is_a_protocol_error_or_awaits_more(pieces: list[bytes]) -> None:
    parser = FrameParser(limit=1 << 16)
    try:
        for piece in pieces:
            parser.feed(piece)
            assert parser.buffered <= parser.limit
    except ProtocolError:
        pass
