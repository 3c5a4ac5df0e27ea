"""Measures against their definitions, written out over all small cases."""

from __future__ import annotations

from itertools import product
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance.measures import Assignment, gini, holders, least_moves, load, moved, peak, ratio, spread, unheld
from evenq.errors import ArgumentError
from evenq.model import MessageQueue


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


def assignment(shares: dict[str, str]) -> dict[str, list[MessageQueue]]:
    """``{"x": "01"}``: member x holds queues 0 and 1."""
    return {member: [queue(int(digit)) for digit in digits] for member, digits in shares.items()}


loads = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def with_loads(counts: list[int]) -> Assignment:
    numbers = iter(range(sum(counts)))
    return {f"m{rank}": [queue(next(numbers)) for _ in range(count)] for rank, count in enumerate(counts)}


def test_load_and_spread() -> None:
    shares = assignment({"x": "012", "y": "", "z": "3"})
    assert load(shares) == {"x": 3, "y": 0, "z": 1}
    assert spread(shares) == 3


@given(loads)
def test_gini_is_half_the_mean_difference_over_the_mean(counts: list[int]) -> None:
    mean = fmean(counts)
    difference = fmean(abs(one - other) for one, other in product(counts, counts))
    assert gini(with_loads(counts)) == pytest.approx(difference / 2 / mean if mean else 0)


@given(loads)
def test_peak_is_the_fullest_over_the_mean(counts: list[int]) -> None:
    assert peak(with_loads(counts)) == pytest.approx(max(counts) / fmean(counts) if any(counts) else 1)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"x": "01", "y": "2"}, {"x": "01", "y": "2"}, ""),
        ({"x": "01", "y": "2"}, {"x": "0", "y": "12"}, "1"),
        ({"x": "01", "y": "2"}, {"y": "012"}, "01"),  # x is gone: what it had moved
        ({"x": "01", "y": "2"}, {"x": "013", "y": "2"}, ""),  # 3 is new: nobody had it
        ({"x": "01", "y": "2"}, {"x": "0", "y": "2"}, ""),  # nobody has 1 any more
        ({}, {"x": "01"}, ""),
    ],
)
def test_moved(before: dict[str, str], after: dict[str, str], expected: str) -> None:
    assert moved(assignment(before), assignment(after)) == {queue(int(digit)) for digit in expected}


def test_unheld() -> None:
    assert unheld(assignment({"x": "01"}), [queue(1), queue(2)]) == {queue(2)}


def brute_force(before: Assignment, members: str, queues: list[MessageQueue]) -> int:
    """The fewest moves over every even way to hand out the queues."""
    found = []
    for owners in product(members, repeat=len(queues)):
        after = {member: [q for q, owner in zip(queues, owners, strict=True) if owner == member] for member in members}
        if spread(after) <= 1:
            found.append(len(moved(before, after)))
    return min(found)


@given(
    st.lists(st.sampled_from("wxyz-"), min_size=1, max_size=6),
    st.sets(st.sampled_from("wxyzv"), min_size=1, max_size=4),
    st.sets(st.integers(0, 7), min_size=1, max_size=6),
)
@settings(deadline=None)
def test_least_moves_is_what_trying_everything_finds(owners: list[str], members: set[str], numbers: set[int]) -> None:
    """Uneven beginnings, queues that nobody had, members and queues that come and go."""
    before = {member: [queue(n) for n, owner in enumerate(owners) if owner == member] for member in "wxyz"}
    queues = [queue(number) for number in numbers]
    assert least_moves(before, members, queues) == brute_force(before, "".join(members), queues)


def test_ratio() -> None:
    assert (ratio(6, 3), ratio(0, 0), ratio(2, 0)) == (2.0, 1.0, None)


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"members=\[\]"):
        least_moves({}, [], [queue(0)])
    with pytest.raises(ArgumentError, match=r"assignment=\{\}"):
        spread({})
    with pytest.raises(ArgumentError, match="both x and y hold it"):
        holders(assignment({"x": "0", "y": "0"}))
