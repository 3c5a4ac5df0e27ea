"""Which offsets are missing: what was to be read, less what was. Pure.

RocketMQ gives every message of a queue the next offset, whatever it is: filters, transactions and delays leave no
holes, and compaction keeps entries. What retention has deleted before it was to be read was never to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["BLOCK", "Span", "joined", "missing", "short_blocks"]

# From, and up to but not including.
Span = tuple[int, int]

# Offsets are counted in blocks of so many, and only those that fall short are looked at closely.
BLOCK = 1000


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that touch or overlap as one.

    >>> joined([(5, 9), (0, 5), (12, 12), (20, 22)])
    [(0, 9), (20, 22)]
    """
    found: list[Span] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def short_blocks(planned: Sequence[Span], counts: Mapping[int, int]) -> list[int]:
    """The blocks that hold fewer messages than were to be read; ``counts`` has the messages by block.

    >>> short_blocks([(0, 2500)], {0: 1000, 1: 999, 2: 500})
    [1]
    """
    wanted: dict[int, int] = {}
    for start, stop in joined(planned):
        for block in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            inside = min(stop, (block + 1) * BLOCK) - max(start, block * BLOCK)
            wanted[block] = wanted.get(block, 0) + inside
    return [block for block, number in wanted.items() if counts.get(block, 0) < number]


def missing(planned: Sequence[Span], blocks: Sequence[int], there: Iterable[int]) -> list[Span]:
    """The offsets in these blocks that were to be read and are not ``there``, as spans.

    >>> missing([(10, 20)], [0], [10, 11, 14, 15, 16, 17, 18])
    [(12, 14), (19, 20)]
    """
    have = set(there)
    spans = joined(planned)
    lost = [
        (offset, offset + 1)
        for block in blocks
        for start, stop in spans
        for offset in range(max(start, block * BLOCK), min(stop, (block + 1) * BLOCK))
        if offset not in have
    ]
    return joined(lost)
