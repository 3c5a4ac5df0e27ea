"""Work that is done in pieces, as a generator that yields where others may have their turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

__all__ = ["at_once"]

T = TypeVar("T")


def at_once(pieces: Generator[None, None, T]) -> T:
    """What comes of the work, for whoever need not stop in between.

    >>> def count():
    ...     yield
    ...     return 7
    >>> at_once(count())
    7
    """
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return cast(T, end.value)
