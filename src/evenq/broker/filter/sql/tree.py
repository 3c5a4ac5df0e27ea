"""The nodes of an SQL92 expression."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from evenq.broker.filter.sql.values import Value

__all__ = [
    "And",
    "Compare",
    "Constant",
    "Equal",
    "Holds",
    "In",
    "IsTrue",
    "Negate",
    "Node",
    "Not",
    "Operator",
    "Or",
    "Part",
    "Property",
    "is_boolean",
    "size",
]


class Operator(Enum):
    """How two numbers are compared; the value is how it is written."""

    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="


class Part(Enum):
    """Where a text is looked for; the value is how it is written."""

    ANYWHERE = "CONTAINS"
    FRONT = "STARTSWITH"
    END = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a string, TRUE, FALSE or NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message: a string, or NULL where it has none of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """A minus sign before something; NULL where that is no number."""

    of: Node


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property where a condition is wanted: no string is TRUE, so it is FALSE, or NULL."""

    of: Node


@dataclass(frozen=True, slots=True)
class Not:
    of: Node


@dataclass(frozen=True, slots=True)
class And:
    all: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    any: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    left: Node
    operator: Operator
    right: Node


@dataclass(frozen=True, slots=True)
class Equal:
    """``IS NULL`` too: then ``right`` is NULL, which cannot be written so."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Holds:
    """Whether a string has a text in it, or with ``negated`` whether it has not; FALSE for what is no string."""

    of: Node
    part: Part
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    of: Property
    texts: frozenset[str]
    negated: bool


Condition: TypeAlias = IsTrue | Not | And | Or | Compare | Equal | Holds | In
Node: TypeAlias = Constant | Property | Negate | Condition


def is_boolean(node: Node) -> bool:
    """Whether a node can stand where a condition is wanted. NULL can, being neither."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negate)


def size(node: Node) -> int:
    """How much work a node is for a message at most, with all below it: 1 for each, 2 for one that compares.

    >>> size(Or((Equal(Property("a"), Constant(1)), IsTrue(Property("b")))))
    7
    """
    match node:
        case Constant() | Property():
            return 1
        case Negate(of) | IsTrue(of) | Not(of):
            return 1 + size(of)
        case Holds(of) | In(of):
            return 2 + size(of)
        case And(nodes) | Or(nodes):
            return 1 + sum(map(size, nodes))
        case Compare(left, _, right) | Equal(left, right):
            return 2 + size(left) + size(right)
