"""Reading expressions: what is refused, and that the error says where and why."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.filter.sql.parser import parse
from evenq.errors import ArgumentError

REFUSED = {
    "": "at 0: the end stands where a property or a value should be",
    "a = ": "at 4: the end stands where a property or a value should be",
    "a = 1 b = 2": "at 6: 'b' stands where AND, OR or the end should be",
    "a LIKE 'x'": "at 2: 'LIKE' stands where AND, OR or the end should be",
    "(a = 1": r"at 6: the end stands where \) should be",
    "a = 1)": r"at 5: '\)' stands where AND, OR or the end should be",
    "a NOT 5": "at 6: '5' stands where BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH should be",
    "a IN (1)": "at 6: '1' stands where a string in single quotes should be",
    "a IS 5": "at 5: '5' stands where NULL should be",
    "a BETWEEN 1, 5": "at 11: ',' stands where AND should be",
    "007 = a": "at 1: '0' stands where",
    "a; b": "';' at 1 has no meaning",
    'a = "x"': "'\"' at 4 has no meaning",
    "a = 'x": "has no meaning",
    "'x'": "a value stands where a condition is wanted",
    "a = 1 AND 5": "a value stands where a condition is wanted",
    "NOT -1": "a value stands where a condition is wanted",
    "a > 'x'": "> compares numbers and properties only",
    "a <= TRUE": "<= compares numbers and properties only",
    "a BETWEEN 'a' AND 'b'": "compares numbers and properties only",
    "(a = 1) < 5": "< compares numbers and properties only",
    "a BETWEEN 5 AND 1": "BETWEEN wants the lower value first",
    "a = NULL": "write IS NULL",
    "TRUE = 1": "True cannot be compared with 1",
    "'x' IN ('x')": "only a property can be looked for by IN",
    "a = 9223372036854775808": "has more than 64 bits",
    "a = 1e400": "too large for a double",
    "(" * 101 + "a" + ")" * 101: "nested deeper than 100 levels",
    "a = TRUE" + " = TRUE" * 200: "nested deeper than 100 levels",
}


@pytest.mark.parametrize("expression", REFUSED, ids=lambda text: text[:25])
def test_what_cannot_be_meant_is_refused(expression: str) -> None:
    with pytest.raises(ArgumentError, match=REFUSED[expression]):
        parse(expression)


@pytest.mark.parametrize(
    ("loose", "explicit"),
    [
        ("a = 1 OR b = 2 AND c = 3", "(a = 1) OR ((b = 2) AND (c = 3))"),
        ("NOT a = TRUE", "(NOT a) = TRUE"),
        ("a BETWEEN 1 AND 5 AND b = 2", "(a BETWEEN 1 AND 5) AND (b = 2)"),
        ("a > -1", "a > (-1)"),
        ("a = 1 = TRUE", "(a = 1) = TRUE"),
        ("a NOT IN ('x') OR b IS NOT NULL", "(a NOT IN ('x')) OR (b IS NOT NULL)"),
        ("A = 1", "A = 1 /* names keep their case */ --"),
    ],
)
def test_operators_bind_as_in_java(loose: str, explicit: str) -> None:
    assert parse(loose) == parse(explicit)


@given(st.text(st.sampled_from("ab1.'()<>=+-, \nNOTANDRINULLISBEW*/")))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ArgumentError):
        parse(text)
