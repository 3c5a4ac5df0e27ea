"""The records of the trace, as Java's clients of several versions write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.protocol.traces import (
    AfterRecord,
    BeforeRecord,
    EndRecord,
    RecallRecord,
    SentRecord,
    TraceRecord,
    client_of,
    decode_trace,
)

SENT = SentRecord(1700, "R", "shop", "orders", "KEY", "paid", "a b", "1.2.3.4:10911", 5, 12, 3, "PLACE", True)
BEFORE = BeforeRecord(1700, "R", "billing", "CALL", "KEY", 2, "a b")
AFTER = AfterRecord("CALL", "KEY", 15, False, "a b", 4, 1731, "billing")
END = EndRecord(1700, "R", "shop", "orders", "KEY", "", "", "1.2.3.4:10911", 2, "TX", "ROLLBACK_MESSAGE", True)
RECALL = RecallRecord(1700, "R", "shop", "orders", "KEY", False)


def wire(*fields: str) -> bytes:
    return ("\x01".join(fields) + "\x02").encode()


@pytest.mark.parametrize("record", [SENT, BEFORE, AFTER, END, RECALL], ids=lambda record: record.KIND)
def test_what_is_written_is_read(record: TraceRecord) -> None:
    assert decode_trace(record.encode().encode()) == ([record], [])


def test_a_message_holds_many_records() -> None:
    body = "".join(record.encode() for record in (SENT, BEFORE, AFTER, END, RECALL)).encode()
    assert decode_trace(body).records == [SENT, BEFORE, AFTER, END, RECALL]


@pytest.mark.parametrize(
    ("body", "record"),
    [
        # before the broker's id was there
        (
            wire("Pub", "1", "R", "g", "t", "KEY", "tag", "k", "h:1", "5", "6", "0", "true"),
            SentRecord(1, "R", "g", "t", "KEY", "tag", "k", "h:1", 5, 6, 0, "", True),
        ),
        # with the client's host behind
        (
            wire("Pub", "1", "R", "g", "t", "KEY", "null", "null", "h:1", "5", "6", "0", "PLACE", "false", "10.0.0.1"),
            SentRecord(1, "R", "g", "t", "KEY", "", "", "h:1", 5, 6, 0, "PLACE", False),
        ),
        (wire("SubBefore", "1", "R", "g", "CALL", "KEY", "0", ""), BeforeRecord(1, "R", "g", "CALL", "KEY", 0, "")),
        (
            wire("SubBefore", "1", "R", "g", "CALL", "KEY", "0", "k", "10.0.0.1"),
            BeforeRecord(1, "R", "g", "CALL", "KEY", 0, "k"),
        ),
        (wire("SubAfter", "CALL", "KEY", "7", "true", "k"), AfterRecord("CALL", "KEY", 7, True, "k")),
        (wire("SubAfter", "CALL", "KEY", "7", "true", "k", "0"), AfterRecord("CALL", "KEY", 7, True, "k", 0)),
        # to a cloud: without time and group
        (wire("SubAfter", "CALL", "KEY", "7", "false", "", "3", ""), AfterRecord("CALL", "KEY", 7, False, "", 3)),
    ],
)
def test_records_of_other_versions_are_read(body: bytes, record: TraceRecord) -> None:
    assert decode_trace(body) == ([record], [])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (wire("Pub", "1", "R"), "at least length"),
        (wire("SubBefore", "soon", "R", "g", "CALL", "KEY", "0", ""), "Expected `int`"),
        (wire("SubBefore", "9" * 30, "R", "g", "CALL", "KEY", "0", ""), "int"),
        (wire("SubAfter", "CALL", "KEY", "7", "perhaps", "k"), "Expected `bool`"),
        (wire("Later", "1"), "its kind is not known"),
        (b"\xff\xfe", "its kind is not known"),
    ],
)
def test_a_damaged_record_does_not_hide_the_others(record: bytes, reason: str) -> None:
    found = decode_trace(SENT.encode().encode() + record + b"\x02" + AFTER.encode().encode())
    assert found.records == [SENT, AFTER]
    (told,) = found.damaged
    assert reason in told


@given(st.binary(max_size=200))
def test_nothing_that_comes_makes_it_fail(body: bytes) -> None:
    decode_trace(body)


@given(
    st.lists(st.sampled_from([b"Pub", b"SubBefore", b"SubAfter", b"EndTransaction", b"\x01", b"\x02", b"1", b"true"]))
)
def test_nothing_that_looks_like_a_trace_makes_it_fail(parts: list[bytes]) -> None:
    decode_trace(b"".join(parts))


def test_a_call_tells_its_client() -> None:
    assert client_of("0A00000112670000CAFE47B761F40000") == "10.0.0.1@4711"
    six = "20010DB8000000000000000000000001" + "1267" + "0" * 20
    assert client_of(six) == "2001:db8::1@4711"
    assert client_of("CALL") is None
