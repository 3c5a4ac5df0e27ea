"""From the tree of an expression to a function of a message's properties, in three-valued logic.

Every node becomes a closure once, so that a message costs no look at the tree. NULL is None: it passes through
NOT, decides neither AND nor OR, and does not match in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from evenq.broker.filter.sql.tree import (
    And,
    Compare,
    Constant,
    Equal,
    Holds,
    In,
    IsTrue,
    Negate,
    Node,
    Not,
    Operator,
    Or,
    Part,
    Property,
)
from evenq.broker.filter.sql.values import Incomparable, Value, compare, read_double

__all__ = ["compile_tree"]

Evaluate: TypeAlias = Callable[[Mapping[str, str]], Value]

_TESTS: dict[Operator, Callable[[int], bool]] = {
    Operator.LESS: lambda order: order < 0,
    Operator.AT_MOST: lambda order: order <= 0,
    Operator.MORE: lambda order: order > 0,
    Operator.AT_LEAST: lambda order: order >= 0,
}
_LOOKS: dict[Part, Callable[[str, str], bool]] = {
    Part.ANYWHERE: str.__contains__,
    Part.FRONT: str.startswith,
    Part.END: str.endswith,
}


def compile_tree(root: Node) -> Callable[[Mapping[str, str]], bool]:
    """The function that tells whether a message with these properties matches."""
    evaluate = _compile(root)

    def matches(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except Incomparable:
            return False

    return matches


def _compile(node: Node) -> Evaluate:
    match node:
        case Constant(value):
            return lambda properties: value
        case Property(name):
            return lambda properties: properties.get(name)
        case Negate(of):
            return _negate(_compile(of))
        case IsTrue(of):
            return _is_true(_compile(of))
        case Not(of):
            return _not(_compile(of))
        case And(nodes):
            return _all(tuple(map(_compile, nodes)))
        case Or(nodes):
            return _any(tuple(map(_compile, nodes)))
        case Compare(left, operator, right):
            return _compare(_compile(left), _TESTS[operator], _compile(right))
        case Equal(left, right):
            return _equal(_compile(left), _compile(right))
        case Holds(of, part, text, negated):
            return _holds(_compile(of), _LOOKS[part], text, negated)
        case In(of, texts, negated):
            return _in(_compile(of), texts, negated)


def _negate(of: Evaluate) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        value = of(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return type(value)(-value)

    return evaluate


def _is_true(of: Evaluate) -> Evaluate:
    return lambda properties: None if of(properties) is None else False


def _not(of: Evaluate) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        value = of(properties)
        return None if value is None else not value

    return evaluate


def _all(conditions: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        result: bool | None = True
        for condition in conditions:
            value = condition(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def _any(conditions: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        result: bool | None = False
        for condition in conditions:
            value = condition(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def _compare(left: Evaluate, test: Callable[[int], bool], right: Evaluate) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        if second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            first, second = read_double(first), read_double(second)
        return test(compare(first, second))

    return evaluate


def _equal(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        first, second = left(properties), right(properties)
        if first is None:
            # two things that are missing are equal: IS NULL rests on it
            return True if second is None else None
        return False if second is None else compare(first, second) == 0

    return evaluate


def _holds(of: Evaluate, look: Callable[[str, str], bool], text: str, negated: bool) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        value = of(properties)
        return isinstance(value, str) and text != "" and look(value, text) is not negated

    return evaluate


def _in(of: Evaluate, texts: frozenset[str], negated: bool) -> Evaluate:
    def evaluate(properties: Mapping[str, str]) -> Value:
        value = of(properties)
        return None if value is None else (value in texts) is not negated

    return evaluate
