"""Java's hashes: the Java client's own answers, and the edges of its integers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance import Long, java_hash, ring_hash
from evenq.errors import ArgumentError
from tests.balance.cases import load


@pytest.mark.parametrize("case", load("hash_selector"), ids=lambda case: f"{case['type']}-{case['arg']}"[:40])
def test_java_client_answers(case: dict[str, Any]) -> None:
    arg = Long(case["arg"]) if case["type"] == "Long" else case["arg"]
    assert java_hash(arg) == case["hash"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", 0),
        ("polygenelubricants", -(2**31)),
        ("\U0001f680", 31 * 0xD83D + 0xDE80),
        ("\ud83d", 0xD83D),
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (2**63 - 1, -(2**31)),
        (-(2**63), -(2**31)),
        (Long(-1), 0),
        (Long(7), 7),
        (-1, -1),
        (True, 1231),
        (False, 1237),
    ],
)
def test_edges(value: object, expected: int) -> None:
    assert java_hash(value) == expected


@given(st.text())
def test_strings_by_utf_16_unit(text: str) -> None:
    units = text.encode("utf-16-be")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = 31 * code + (high << 8 | low)
    assert (java_hash(text) - code) % 2**32 == 0
    assert -(2**31) <= java_hash(text) < 2**31


@pytest.mark.parametrize(
    ("value", "remedy"),
    [(1.5, "str, int and bool"), (b"key", "str, int and bool"), (None, "str, int and bool"), (2**63, "64 bits")],
)
def test_what_java_cannot_hash_is_an_error_with_a_way_out(value: object, remedy: str) -> None:
    with pytest.raises(ArgumentError, match=remedy) as raised:
        java_hash(value)
    assert (raised.value.argument, raised.value.value) == ("value", value)


def test_ring_hash_is_the_head_of_md5() -> None:
    # RFC 1321: MD5("abc") = 900150983cd24fb0d6963f7d28e17f72
    assert ring_hash("abc") == 0x90015098
    assert ring_hash("half \ud83d") == ring_hash("half ?")
