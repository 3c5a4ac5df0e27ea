"""Reading an SQL92 expression: its grammar, and what Java refuses though the grammar lets it through.

::

    or          and { OR and }
    and         equality { AND equality }
    equality    comparison { ( = | <> ) comparison | IS [ NOT ] NULL }
    comparison  unary { ( < | <= | > | >= ) unary | [ NOT ] BETWEEN unary AND unary
                      | [ NOT ] IN ( string { , string } ) | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) string }
    unary       [ + | - | NOT ] unary | string | number | TRUE | FALSE | NULL | property | ( or )

``NOT`` binds tightest: ``NOT a = 1`` is ``(NOT a) = 1``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count

from evenq.broker.filter.sql.lexer import Kind, Token, token_pieces
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
    is_boolean,
)
from evenq.broker.filter.sql.values import Long, compare
from evenq.errors import ArgumentError
from evenq.protocol.pieces import at_once

__all__ = ["parse", "parse_pieces"]

_OPERATORS = {operator.value: operator for operator in Operator}
_PARTS = {part.value: part for part in Part}
_EQUALITY = frozenset(("=", "<>", "IS"))
_COMPARISON = frozenset((*_OPERATORS, *_PARTS, "NOT", "BETWEEN", "IN"))
_PREFIXES = frozenset(("+", "-", "NOT", "("))
_FIXED = frozenset((Kind.KEYWORD, Kind.SYMBOL))
_WORDS = {"TRUE": True, "FALSE": False, "NULL": None}
_NULL = Constant(None)
_MAX_DEPTH = 100
# After so many operands there is a break.
_PIECE = 200

# A node that is read in pieces.
_Reading = Generator[None, None, Node]


def parse(expression: str) -> Node:
    """The tree of an expression, whose root is a condition.

    >>> parse("a > 5")
    Compare(left=Property(name='a'), operator=<Operator.MORE: '>'>, right=Constant(value=5))
    """
    return at_once(parse_pieces(expression))


def parse_pieces(expression: str) -> Generator[None, None, Node]:
    """The same in pieces: it yields now and then, since a long expression takes long."""
    found = yield from token_pieces(expression)
    return (yield from _Parser(expression, found).parse())


class _Parser:
    """Goes through the tokens of one expression, from left to right."""

    def __init__(self, expression: str, found: list[Token]) -> None:
        self.expression = expression
        self._tokens = found
        # the keyword or symbol that each token is
        self._words = [token.text if token.kind in _FIXED else "" for token in self._tokens]
        self._next = 0
        self._depth = 0
        self._operands = 0

    def parse(self) -> _Reading:
        root = yield from self._or()
        if self._token.kind is not Kind.END:
            raise self._expected("AND, OR or the end")
        return self._condition(root)

    # -- the grammar, from the loosest to the tightest

    def _or(self) -> _Reading:
        return self._joined("OR", self._and, Or)

    def _and(self) -> _Reading:
        return self._joined("AND", self._equality, And)

    def _joined(self, word: str, operand: Callable[[], _Reading], join: Callable[[tuple[Node, ...]], Node]) -> _Reading:
        # one flat node however many there are: a list of a thousand conditions is no deeper than one of two
        operands = [(yield from operand())]
        while self._take(word):
            operands.append((yield from operand()))
        return operands[0] if len(operands) == 1 else join(tuple(map(self._condition, operands)))

    def _equality(self) -> _Reading:
        left = yield from self._comparison()
        for link in count():
            if self._words[self._next] not in _EQUALITY:
                break
            if link > 1:
                self._deeper()
            if self._take("="):
                left = self._equal(left, (yield from self._comparison()))
            elif self._take("<>"):
                left = Not(self._equal(left, (yield from self._comparison())))
            else:
                self._require("IS")
                negated = self._take("NOT")
                self._require("NULL")
                left = Not(Equal(left, _NULL)) if negated else Equal(left, _NULL)
        return left

    def _comparison(self) -> _Reading:
        left = yield from self._unary()
        for link in count():
            word = self._words[self._next]
            if word not in _COMPARISON:
                break
            if link > 1:
                self._deeper()
            if word in _OPERATORS:
                self._next += 1
                left = self._compare(left, _OPERATORS[word], (yield from self._unary()))
                continue
            negated = self._take("NOT")
            if self._take("BETWEEN"):
                left = yield from self._between(left, negated)
            elif self._take("IN"):
                left = self._in(left, negated)
            elif (word := self._words[self._next]) in _PARTS:
                self._next += 1
                left = Holds(left, _PARTS[word], self._string(), negated)
            else:
                raise self._expected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        return left

    def _between(self, value: Node, negated: bool) -> _Reading:
        low = yield from self._unary()
        self._require("AND")
        high = yield from self._unary()
        if negated:
            return Or((self._compare(value, Operator.LESS, low), self._compare(value, Operator.MORE, high)))
        both = self._compare(value, Operator.AT_LEAST, low), self._compare(value, Operator.AT_MOST, high)
        if isinstance(low, Constant) and isinstance(high, Constant) and compare(high.value, low.value) < 0:
            raise self._refused(f"BETWEEN wants the lower value first, not {low.value} AND {high.value}")
        return And(both)

    def _in(self, value: Node, negated: bool) -> Node:
        if not isinstance(value, Property):
            raise self._refused("only a property can be looked for by IN")
        self._require("(")
        texts = [self._string()]
        while self._take(","):
            texts.append(self._string())
        self._require(")")
        return In(value, frozenset(texts), negated)

    def _unary(self) -> _Reading:
        self._operands += 1
        if self._operands % _PIECE == 0:
            yield
        self._deeper()
        node = yield from self._prefixed()
        self._depth -= 1
        return node

    def _prefixed(self) -> _Reading:
        if self._words[self._next] not in _PREFIXES:
            return self._primary()
        if self._take("+"):
            return (yield from self._unary())
        if self._take("-"):
            return Negate((yield from self._unary()))
        if self._take("NOT"):
            return Not(self._condition((yield from self._unary())))
        self._require("(")
        inner = yield from self._or()
        self._require(")")
        return inner

    def _primary(self) -> Node:
        token = self._token
        match token.kind:
            case Kind.STRING:
                return Constant(self._string())
            case Kind.NAME:
                return Property(self._advance().text)
            case Kind.INTEGER:
                return Constant(self._integer(self._advance()))
            case Kind.DECIMAL:
                return Constant(self._decimal(self._advance()))
            case Kind.KEYWORD if token.text in _WORDS:
                return Constant(_WORDS[self._advance().text])
            case _:
                raise self._expected("a property or a value")

    # -- literals

    def _string(self) -> str:
        if self._token.kind is not Kind.STRING:
            raise self._expected("a string in single quotes")
        return self._advance().text[1:-1].replace("''", "'")

    def _integer(self, token: Token) -> int:
        digits = token.text.rstrip("lL")
        if len(digits) > 19 or (value := int(digits)) >= 1 << 63:
            raise self._refused(f"{digits} has more than 64 bits")
        return value if value < 1 << 31 else Long(value)

    def _decimal(self, token: Token) -> float:
        value = float(token.text)
        if value == float("inf"):
            raise self._refused(f"{token.text} is too large for a double")
        return value

    # -- what Java refuses

    def _condition(self, node: Node) -> Node:
        if is_boolean(node):
            return node
        if isinstance(node, Property):
            return IsTrue(node)
        raise self._refused("a value stands where a condition is wanted, such as a = 1")

    def _compare(self, left: Node, operator: Operator, right: Node) -> Node:
        for side in (left, right):
            if is_boolean(side) or (isinstance(side, Constant) and isinstance(side.value, str)):
                raise self._refused(f"{operator.value} compares numbers and properties only")
        return Compare(left, operator, right)

    def _equal(self, left: Node, right: Node) -> Node:
        if _NULL in (left, right):
            raise self._refused("nothing is equal to NULL: write IS NULL or IS NOT NULL")
        if isinstance(left, Constant) and isinstance(right, Constant) and is_boolean(left) and not is_boolean(right):
            raise self._refused(f"{left.value} cannot be compared with {right.value!r}")
        return Equal(left, right)

    # -- moving on

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _take(self, text: str) -> bool:
        """Go over a keyword or symbol if it comes next."""
        if self._words[self._next] != text:
            return False
        self._next += 1
        return True

    def _require(self, text: str) -> None:
        if not self._take(text):
            raise self._expected(text)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refused(f"it is nested deeper than {_MAX_DEPTH} levels")

    def _expected(self, wanted: str) -> ArgumentError:
        found = repr(self._token.text) if self._token.text else "the end"
        return self._refused(f"{found} stands where {wanted} should be")

    def _refused(self, reason: str) -> ArgumentError:
        return ArgumentError("expression", self.expression, f"at {self._token.at}: {reason}")
