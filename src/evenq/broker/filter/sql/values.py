"""Java's rules for values that meet in a comparison: who becomes what, and what cannot be compared at all.

Properties are strings, so a string next to a number is read as a number of that very kind: ``a > 5`` reads ``a`` as a
32-bit integer, ``a > 5.0`` as a double. A string that cannot be read so is no NULL: it ends the whole evaluation.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

__all__ = ["Incomparable", "Long", "Value", "compare", "read_double"]


class Long(int):
    """A 64-bit integer of Java. A plain int is one of 32 bits: strings next to it must fit into these."""


Value: TypeAlias = str | bool | int | float | None

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
)
_SPECIAL = re.compile(r"[+-]?(?:NaN|Infinity)")
# No double needs so many digits; to read more of them, again and again, would keep the others waiting.
_LONGEST_DOUBLE = 1000
# what Java trims: everything up to the blank
_BLANKS = "".join(map(chr, range(33)))
_BITS: dict[type, int] = {int: 32, Long: 64}


class Incomparable(Exception):
    """Two values that Java fails to compare: the message does not match, whatever else is said of it."""


def read_double(text: str) -> float:
    """A string as a double, as Java reads it.

    >>> read_double(" 1.5e3 "), read_double("0x1p3"), read_double("-Infinity")
    (1500.0, 8.0, -inf)
    """
    text = text.strip(_BLANKS)
    if len(text) > _LONGEST_DOUBLE:
        raise Incomparable(text)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if _SPECIAL.fullmatch(text):
        return float(text)
    if match := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return math.copysign(math.inf, -1 if text[0] == "-" else 1)
    raise Incomparable(text)


def _read_integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise Incomparable(text)
    # longer than any such number, zeros in front apart: not worth the effort of reading
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 20:
        raise Incomparable(text)
    value = int(digits or "0") * (-1 if text[0] == "-" else 1)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Incomparable(text)
    return value


def compare(left: Value, right: Value) -> int:
    """Less than 0, 0 or more than 0, as ``left`` comes before, with or after ``right``; neither is NULL.

    >>> compare("7", 7), compare(1, 1.5) < 0, compare(True, "true" == "no") > 0
    (0, True, True)
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return _compare_bool(left, right)
    if isinstance(left, str):
        return _order(left, right) if isinstance(right, str) else _compare_number(_like(left, right), right)
    return _compare_number(left, _like(right, left) if isinstance(right, str) else right)


def _compare_bool(left: Value, right: Value) -> int:
    if isinstance(left, str):
        left = left.lower() == "true"
    elif isinstance(left, bool) and isinstance(right, str):
        # Java means to read the string and reads the truth value instead
        raise Incomparable(right)
    return _order(left, right) if isinstance(left, bool) and isinstance(right, bool) else -1


def _like(text: str, number: Value) -> float:
    """A string as a number of the kind of another."""
    return read_double(text) if isinstance(number, float) else _read_integer(text, _BITS[type(number)])


def _compare_number(left: Value, right: Value) -> int:
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if isinstance(left, float) or isinstance(right, float):
        return _order(_sortable(float(left)), _sortable(float(right)))
    return _order(left, right)


def _sortable(number: float) -> tuple[bool, float, float]:
    """Java's order of doubles: -0.0 before 0.0, and NaN, which is equal to itself, behind everything."""
    return (True, 0.0, 0.0) if math.isnan(number) else (False, number, math.copysign(1.0, number))


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)
