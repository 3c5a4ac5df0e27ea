"""Java's numbers: how strings are read, and how they are ordered."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.filter.sql.values import Incomparable, Long, compare, read_double

numbers = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1).map(Long), st.floats())


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), (".5", 0.5), ("5.", 5.0), ("+1e2d", 100.0), ("\t-2F\n", -2.0), ("0x.8p1", 1.0), ("1e999", math.inf)],
)
def test_doubles_are_read_as_java_writes_them(text: str, value: float) -> None:
    assert read_double(text) == value


@pytest.mark.parametrize("text", ["", "x", "inf", "nan", "1_0", "1 0", "0x1", "1e", "\u00a01", "--1", "."])
def test_what_python_would_read_and_java_does_not_is_refused(text: str) -> None:
    with pytest.raises(Incomparable):
        read_double(text)


@pytest.mark.parametrize(
    ("text", "number"), [("5.0", 5), (" 5", 5), ("3000000000", 5), ("9" * 5000, Long(5)), ("", 0), ("½", 5)]
)
def test_a_string_next_to_an_integer_must_be_one_of_its_width(text: str, number: int) -> None:
    with pytest.raises(Incomparable):
        compare(text, number)
    with pytest.raises(Incomparable):
        compare(number, text)


@given(st.lists(numbers, min_size=3, max_size=3))
def test_numbers_of_all_kinds_have_one_order(three: list[float]) -> None:
    first, second, third = three
    assert compare(first, second) == -compare(second, first)
    assert compare(first, first) == 0
    if not any(isinstance(number, float) for number in three) and compare(first, second) <= 0 >= compare(second, third):
        assert compare(first, third) <= 0


@given(numbers)
def test_a_number_equals_its_own_text(number: float) -> None:
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN" if number != number else str(number))

    assert compare(text, number) == compare(number, text) == 0


def test_zeros_in_front_of_a_number_count_for_nothing() -> None:
    assert [compare("0" * 5000 + text, 5) for text in ("", "5", "6")] == [-1, 0, 1]
    assert compare("-" + "0" * 5000 + "7", -7) == 0
