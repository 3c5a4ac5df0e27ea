"""Cutting an SQL92 expression into tokens."""

from __future__ import annotations

import re
from collections.abc import Generator
from enum import Enum
from typing import NamedTuple

from evenq.errors import ArgumentError

__all__ = ["Kind", "Token", "token_pieces"]

_KEYWORDS = frozenset("NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split())

# After so many tokens there is a break.
_PIECE = 1000

# A decimal begins at no digit behind a 0, which is a token by itself: all others would be looked at once for each 0.
_TOKEN = re.compile(
    r"""
    (?P<skip>    [ \t\n\r\f]+ | --[^\n\r]* | /\*(?:[^*]|\*(?!/))*\*/ )
  | (?P<decimal> (?:(?<![0-9])[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | (?<![0-9])[0-9]+[eE][+-]?[0-9]+ )
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


_KINDS = {kind.name.lower(): kind for kind in Kind}


class Token(NamedTuple):
    """``text`` is as it was written, but keywords in capitals; ``at`` is where it begins."""

    kind: Kind
    text: str
    at: int


def token_pieces(expression: str) -> Generator[None, None, list[Token]]:
    """All tokens, and behind them the end. It yields now and then, since a long expression takes long."""
    found: list[Token] = []
    at = count = 0
    # A search would look through all that follows a place without a token, once for each character.
    while (match := _TOKEN.match(expression, at)) is not None:
        kind, text = match.lastgroup or "", match[0]
        if kind == "name" and (word := text.upper()) in _KEYWORDS:
            found.append(Token(Kind.KEYWORD, word, at))
        elif kind != "skip":
            found.append(Token(_KINDS[kind], text, at))
        at = match.end()
        count += 1
        if count % _PIECE == 0:
            yield
    if at < len(expression):
        raise ArgumentError("expression", expression, f"{expression[at]!r} at {at} has no meaning in SQL92")
    found.append(Token(Kind.END, "", at))
    return found
