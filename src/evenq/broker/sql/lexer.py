"""Cutting an SQL92 expression into tokens."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from evenq.errors import ArgumentError

__all__ = ["Kind", "Token", "tokens"]

_KEYWORDS = frozenset("NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split())

_TOKEN = re.compile(
    r"""
    (?P<skip>    [ \t\n\r\f]+ | --[^\n\r]* | /\*(?:[^*]|\*(?!/))*\*/ )
  | (?P<decimal> (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*[lL]? )
  | (?P<string>  '(?:''|[^'])*' )
  | (?P<name>    [a-zA-Z_$][a-zA-Z0-9_$]* )
  | (?P<symbol>  <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


class Kind(Enum):
    """What a token is. The value is what a reader of an error knows it as."""

    DECIMAL = "a decimal number"
    INTEGER = "an integer"
    STRING = "a string"
    NAME = "the name of a property"
    KEYWORD = "a keyword"
    SYMBOL = "a symbol"
    END = "the end"


class Token(NamedTuple):
    """``text`` is as it was written, but keywords in capitals; ``at`` is where it begins."""

    kind: Kind
    text: str
    at: int


def tokens(expression: str) -> list[Token]:
    """All tokens, and behind them the end.

    >>> [token.text for token in tokens("a >= 1.5 and b is /* not */ null")]
    ['a', '>=', '1.5', 'AND', 'b', 'IS', 'NULL', '']
    """
    found: list[Token] = []
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ArgumentError("expression", expression, f"{expression[at]!r} at {at} has no meaning in SQL92")
        kind, text = match.lastgroup or "", match[0]
        if kind == "name" and text.upper() in _KEYWORDS:
            found.append(Token(Kind.KEYWORD, text.upper(), at))
        elif kind != "skip":
            found.append(Token(Kind[kind.upper()], text, at))
        at = match.end()
    found.append(Token(Kind.END, "", at))
    return found
