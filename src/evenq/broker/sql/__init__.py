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

from collections.abc import Callable, Mapping
from functools import lru_cache

from evenq.broker.sql.evaluator import compile_tree
from evenq.broker.sql.parser import parse

__all__ = ["Filter", "sql_filter"]

Filter = Callable[[Mapping[str, str]], bool]


@lru_cache(1024)
def sql_filter(expression: str) -> Filter:
    """The filter of an expression, made once for each. What cannot be read is an ArgumentError that says where."""
    return compile_tree(parse(expression))
