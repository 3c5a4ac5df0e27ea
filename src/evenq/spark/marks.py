"""The mark of a written row: which query wrote it, in which epoch and task, as which row; and what it says. Pure.

A row that is written again, by a batch that is run again, has the same mark. ::

    5f2c8e01a9b34d77.12.3.4567.9a0c1b2d        query . epoch . partition . row . checksum

It is the unique key of the message, which every client shows and brokers find: whoever leaves out unique keys that he
has seen gets each row once, without knowing of marks. Rows that keep the unique key of what they are copied from have
their mark in a property of its own.

Rows are numbered in the order in which Spark gives them. Where that order is another one in the next try, as it may be
behind a shuffle, the checksum tells the rows apart: then they come twice, but none is taken for another and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MARK", "PROPERTY", "QUERY_DIGITS", "Origin", "epoch_of"]

# The property that a mark travels in where the unique key is another one.
PROPERTY = "EVENQ_ROW"

# What a unique key ends with that is a mark.
MARK = r"\.\d+\.\d+\.\d+\.[0-9a-f]{8}$"

# Of a query's name so many letters go into marks.
QUERY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of one task come from."""

    query: str
    epoch: int
    partition: int

    def mark(self, row: int, checksum: int) -> str:
        """
        >>> Origin("5f2c8e01-a9b3-4d77-8e01-b2c3d4e5f607", 12, 3).mark(4567, 0x9A0C1B2D)
        '5f2c8e01a9b34d77.12.3.4567.9a0c1b2d'
        """
        return f"{self.prefix}{row}.{checksum:08x}"

    @property
    def prefix(self) -> str:
        """What the marks of all its rows begin with."""
        return f"{self.query.replace('-', '')[:QUERY_DIGITS]}.{self.epoch}.{self.partition}."


def epoch_of(mark: str) -> tuple[str, int]:
    """The query and the epoch of a mark. What is none at all belongs to no query.

    >>> epoch_of("5f2c8e01a9b34d77.12.3.4567.9a0c1b2d")
    ('5f2c8e01a9b34d77', 12)
    """
    query, _, rest = mark.partition(".")
    epoch, dot, _ = rest.partition(".")
    return (query, int(epoch)) if dot and epoch.isdecimal() else ("", 0)
