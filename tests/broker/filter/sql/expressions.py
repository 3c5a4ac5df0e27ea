"""SQL92 expressions at random: such that say in plain Python what they mean, and such that only must be legal text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne

from hypothesis import strategies as st

__all__ = ["CONTENTS", "Case", "Unreadable", "anything", "cases", "messages"]

NAMES = ("a", "b", "_c$9")
# what properties hold: numbers of each kind, what nearly is one, and words
CONTENTS = [
    "1",
    "5",
    "-3",
    "+5",
    "05",
    "1.5",
    "5e0",
    " 5",
    "3000000000",
    "x",
    "xy",
    "true",
    "it's",
    "NaN",
    "-0",
    "9" * 30,
]

messages = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(CONTENTS))

_OPERATORS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}


class Unreadable(Exception):
    """A property is compared with a number and is none."""


@dataclass(frozen=True)
class Case:
    """A condition and what it means: 0 for false, 1 for unknown, 2 for true."""

    text: str
    meaning: Callable[[Mapping[str, str]], int]


def _number(text: str) -> int:
    if not text.lstrip("+-").isdigit() or not -(2**31) <= int(text) < 2**31:
        raise Unreadable
    return int(text)


def _compares(name: str, operator: str, number: int) -> Case:
    def meaning(message: Mapping[str, str]) -> int:
        return 2 * _OPERATORS[operator](_number(message[name]), number) if name in message else 1

    return Case(f"{name} {operator} {number}", meaning)


def _between(name: str, low: int, high: int, negated: bool) -> Case:
    low, high = min(low, high), max(low, high)

    def meaning(message: Mapping[str, str]) -> int:
        return 2 * ((low <= _number(message[name]) <= high) != negated) if name in message else 1

    return Case(f"{name} {'NOT ' * negated}BETWEEN {low} AND {high}", meaning)


def _is(name: str, text: str, negated: bool) -> Case:
    quoted = text.replace("'", "''")
    return Case(
        f"{name} {'<>' if negated else '='} '{quoted}'",
        lambda message: 2 * ((message[name] == text) != negated) if name in message else 1,
    )


def _in(name: str, texts: list[str], negated: bool) -> Case:
    listed = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
    return Case(
        f"{name} {'NOT ' * negated}IN ({listed})",
        lambda message: 2 * ((message[name] in texts) != negated) if name in message else 1,
    )


def _null(name: str, negated: bool) -> Case:
    return Case(f"{name} IS {'NOT ' * negated}NULL", lambda message: 2 * ((name not in message) != negated))


def _holds(name: str, how: str, text: str, negated: bool) -> Case:
    look = {"CONTAINS": "__contains__", "STARTSWITH": "startswith", "ENDSWITH": "endswith"}[how]

    def meaning(message: Mapping[str, str]) -> int:
        return 2 * (name in message and bool(getattr(message[name], look)(text)) != negated)

    return Case(f"{name} {'NOT ' * negated}{how} '{text}'", meaning)


def _not(case: Case) -> Case:
    return Case(f"NOT ({case.text})", lambda message: 2 - case.meaning(message))


def _joined(word: str, parts: list[Case]) -> Case:
    decided = {"AND": 0, "OR": 2}[word]

    def meaning(message: Mapping[str, str]) -> int:
        found = []
        for part in parts:
            found.append(part.meaning(message))
            if found[-1] == decided:
                break
        return min(found) if word == "AND" else max(found)

    return Case(f" {word} ".join(f"({part.text})" for part in parts), meaning)


_name = st.sampled_from(NAMES)
_small = st.integers(-6, 6)
_leaves = st.one_of(
    st.builds(_compares, _name, st.sampled_from(sorted(_OPERATORS)), _small),
    st.builds(_between, _name, _small, _small, st.booleans()),
    st.builds(_is, _name, st.sampled_from(CONTENTS), st.booleans()),
    st.builds(_in, _name, st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=6), st.booleans()),
    st.builds(_null, _name, st.booleans()),
    st.builds(_holds, _name, st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), st.just("x"), st.booleans()),
)
cases = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(_not, inner),
        st.builds(_joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=4)),
    ),
    max_leaves=8,
)

# Anything that the grammar has, sense or no sense: which of it is refused is then the question.
_strings = st.sampled_from([*CONTENTS, ""]).map(lambda text: "'" + text.replace("'", "''") + "'")
_values = st.one_of(
    _name,
    _strings,
    st.sampled_from(["TRUE", "FALSE", "NULL", "0", "1", "5", "5l", "1.5", "5.", ".5e1", "3000000000", "2147483648"]),
)
_listed = st.lists(_strings, min_size=1, max_size=6).map(", ".join)
_not_word = st.sampled_from(["", "NOT "])


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} {}".format, st.sampled_from(["-", "+", "NOT"]), inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR", *_OPERATORS]), inner),
        st.builds("{} IS {}NULL".format, inner, _not_word),
        st.builds("{} {}BETWEEN {} AND {}".format, inner, _not_word, _values, _values),
        st.builds("{} {}IN ({})".format, inner, _not_word, _listed),
        st.builds(
            "{} {}{} {}".format, inner, _not_word, st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), _strings
        ),
    )


# In brackets: of what follows a whole expression Java takes no notice.
anything = st.recursive(_values, _wider, max_leaves=6).map("({})".format)
