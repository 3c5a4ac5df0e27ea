from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evenq.spark.jobs.audit.gaps import BLOCK, joined, missing, short_blocks

spans = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 900)).map(lambda at: (at[0], at[0] + at[1])), max_size=4
)


def offsets(of: list[tuple[int, int]]) -> set[int]:
    return {offset for start, stop in of for offset in range(start, stop)}


@given(spans)
def test_joined_spans_hold_the_same_offsets_and_do_not_touch(given_spans: list[tuple[int, int]]) -> None:
    found = joined(given_spans)
    assert offsets(found) == offsets(given_spans)
    assert all(one[1] < other[0] for one, other in pairwise(found))


@given(spans, st.sets(st.integers(0, 6000), max_size=12))
def test_what_is_missing_is_found_by_blocks(planned: list[tuple[int, int]], lost: set[int]) -> None:
    wanted = offsets(planned)
    there = wanted - lost
    counts: dict[int, int] = {}
    for offset in there:
        counts[offset // BLOCK] = counts.get(offset // BLOCK, 0) + 1
    blocks = short_blocks(planned, counts)
    assert {offset // BLOCK for offset in wanted & lost} == set(blocks)
    near = [offset for offset in there if offset // BLOCK in blocks]
    assert offsets(missing(planned, blocks, near)) == wanted & lost
