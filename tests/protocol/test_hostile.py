"""Whatever a peer sends: what decodes it gives a value or a ProtocolError, soon."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.errors import ProtocolError
from evenq.protocol import Command, headers
from evenq.protocol.bodies.base import Body
from evenq.protocol.columns import decode_many
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers.base import Header
from evenq.protocol.records import decode_messages, decode_some, encode_record
from tests.harness.scale import examples


def kinds(of: type[Any]) -> Iterator[type[Any]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


BODIES = sorted(set(kinds(Body)), key=lambda kind: kind.__name__)
HEADERS = sorted({kind for kind in kinds(Header) if kind.__module__.startswith(headers.__name__)}, key=repr)

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, -1]), st.floats(), st.booleans()
)
LEAVES = st.one_of(NUMBERS, st.none(), st.text(max_size=5), NUMBERS.map(str), st.just("9" * 5000))
QUEUE_FIELDS = {"topic", "brokerName", "queueId"}


def names_of(kind: type[Body]) -> list[str]:
    found = {field.encode_name for field in msgspec.structs.fields(kind)}
    return sorted(found | QUEUE_FIELDS | {"0", "x"})


def values_for(kind: type[Body]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(names_of(kind))
    return st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(names, inner, max_size=4),
            st.fixed_dictionaries(dict.fromkeys(QUEUE_FIELDS, inner)),
        ),
        max_leaves=12,
    )


@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: str(kind.__name__))
@given(data=st.data())
def test_any_json_as_a_body(kind: type[Body], data: st.DataObject) -> None:
    fields = data.draw(st.dictionaries(st.sampled_from(names_of(kind)), values_for(kind), max_size=6))
    text = json.dumps(fields).encode()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.binary(max_size=3)) + text[at + 1 :]
    with suppress(ProtocolError):
        assert isinstance(kind.decode(text), kind)


@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: str(kind.__name__))
@given(data=st.data())
def test_any_text_as_header_fields(kind: type[Header], data: st.DataObject) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)] or ["x"]
    texts = st.one_of(st.text(max_size=6), NUMBERS.map(str), st.just("9" * 5000))
    ext = data.draw(st.dictionaries(st.sampled_from(names), texts))
    with suppress(ProtocolError):
        assert isinstance(kind.from_ext(ext), kind)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("nest", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_a_body_nested_too_deep_is_a_protocol_error(kind: type[Body], nest: bytes) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(nest * 100_000)


@pytest.mark.parametrize("nest", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_a_header_nested_too_deep_is_a_protocol_error(nest: bytes) -> None:
    header = b'{"extFields":' + nest * 100_000
    with pytest.raises(ProtocolError):
        Command.decode((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)


def packed_record(offset: int, size: int) -> bytes:
    return encode_record(
        topic="t", body=zlib.compress(bytes(size)), queue_id=0, queue_offset=offset, commit_log_offset=0,
        born_timestamp=1, born_host="127.0.0.1:1", store_timestamp=2, store_host="127.0.0.1:2", properties="",
        sys_flag=int(SysFlag.COMPRESSED),
    )  # fmt: skip


def test_a_few_bytes_that_become_very_many_are_unpacked_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(packed_record(offset, 1000) for offset in range(10))
    found, at = [], 0
    while at < len(data):
        messages, at = decode_some(data, at, len(data), room=2500)
        assert 1 <= len(messages) <= 3
        found += messages
    assert [message.queue_offset for message in found] == [*range(10)]
    assert len(decode_messages(data)) == 10

    monkeypatch.setattr("evenq.protocol.records.MAX_UNPACKED", 5000)
    monkeypatch.setattr("evenq.protocol.columns.MAX_UNPACKED", 5000)
    with pytest.raises(ProtocolError, match="become more than 5000 bytes"):
        decode_messages(data)
    with pytest.raises(ProtocolError, match="become more than 5000 bytes"):
        decode_many([data], brokers=["b"])


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
def test_times_that_no_calendar_has(time: int) -> None:
    record = encode_record(
        topic="t", body=b"x", queue_id=0, queue_offset=0, commit_log_offset=0, born_timestamp=time,
        born_host="127.0.0.1:1", store_timestamp=time, store_host="127.0.0.1:2", properties="",
    )  # fmt: skip
    [message] = decode_messages(record)
    assert message.born_at == message.stored_at
    assert message.born_at.year in (1, 9999)
