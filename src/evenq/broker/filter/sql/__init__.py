"""SQL92 filters: which messages a group wants, said of their properties.

>>> wanted = sql_filter("price BETWEEN 10 AND 20 AND region IN ('eu', 'us')")
>>> wanted({"price": "12", "region": "eu"}), wanted({"price": "dear", "region": "eu"}), wanted({})
(True, False, False)

| file | what it holds |
| --- | --- |
| ``lexer.py`` | a text into tokens |
| ``parser.py`` | tokens into a tree, and everything that is refused |
| ``tree.py`` | the kinds of nodes |
| ``values.py`` | Java's rules for comparing and converting values |
| ``evaluator.py`` | a tree into a function of properties |

The answers are the Java broker's, its odd ones too: members of one group may read through both. Two texts are
treated otherwise. Java reads no further than the first complete expression, so that ``a = 1 b = 2`` means ``a = 1``
to it: here that is an error. And Java refuses the number ``0.0``, which is taken here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from evenq.broker.filter.sql.evaluator import compile_tree
from evenq.broker.filter.sql.parser import parse_pieces
from evenq.broker.filter.sql.tree import size
from evenq.protocol.pieces import at_once

__all__ = ["Filter", "Filters", "sql_filter"]

# What a compiled filter takes for each unit of its size and each character of its text, about.
_BYTES_PER_UNIT = 256
# Expressions of so many characters are read at once.
_SHORT = 1024


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled expression. ``size`` is how much work it is for one message at most."""

    matches: Callable[[Mapping[str, str]], bool]
    size: int

    def __call__(self, properties: Mapping[str, str]) -> bool:
        return self.matches(properties)


def sql_filter(expression: str) -> Filter:
    """The filter of an expression. What cannot be read is an ArgumentError that says where."""
    return at_once(_filter_pieces(expression))


def _filter_pieces(expression: str) -> Generator[None, None, Filter]:
    """The same in pieces: it yields now and then, since a long expression takes long."""
    tree = yield from parse_pieces(expression)
    yield
    return Filter(compile_tree(tree), size(tree))


class Filters:
    """The filters that were used last, up to about ``max_bytes`` of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, tuple[Filter, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, expression: str) -> Filter | None:
        """The filter of an expression; None for a long one that is not kept: :meth:`make` it first."""
        known = self._kept.get(expression)
        if known is not None:
            self._kept.move_to_end(expression)
            return known[0]
        if len(expression) > _SHORT:
            return None
        made = sql_filter(expression)
        self._keep(expression, made)
        return made

    def make(self, expression: str) -> Generator[None, None, None]:
        """Make the filter of a long expression in pieces, and keep it."""
        self._keep(expression, (yield from _filter_pieces(expression)))

    def _keep(self, expression: str, made: Filter) -> None:
        if expression in self._kept:
            return
        cost = _BYTES_PER_UNIT * made.size + 4 * len(expression)
        self._kept[expression] = made, cost
        self._bytes += cost
        # the last one is kept, however large: it is about to be used
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed
