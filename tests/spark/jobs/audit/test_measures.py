from __future__ import annotations

import random
from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.spark.jobs.audit.measures import (
    bucket_of,
    bucket_value,
    chi_square_p,
    percentiles,
    skew,
    skew_counted,
)

loads = st.lists(st.integers(0, 10_000), min_size=1, max_size=40)


@given(loads)
def test_skew_does_not_depend_on_order_or_on_how_it_is_counted(given_loads: list[int]) -> None:
    found = skew(given_loads)
    assert found == skew(sorted(given_loads)) == skew_counted(Counter(given_loads))
    assert 1 <= found.peak <= len(given_loads) + 1e-9
    assert -1e-9 <= found.gini < 1
    assert 0 <= found.p <= 1


@given(loads)
def test_gini_is_half_the_mean_difference_over_the_mean(given_loads: list[int]) -> None:
    found = skew(given_loads)
    if any(given_loads):
        count = len(given_loads)
        difference = sum(abs(one - other) for one in given_loads for other in given_loads) / count**2
        assert found.gini == pytest.approx(difference / 2 / found.mean)


@given(st.integers(1, 10**6), st.integers(2, 50))
def test_equal_loads_are_even(load: int, parts: int) -> None:
    found = skew([load] * parts)
    assert (found.peak, found.chi_square, found.p, found.even) == (1.0, 0.0, 1.0, True)


def test_luck_is_not_called_uneven_and_a_full_queue_is() -> None:
    luck = random.Random(4)
    for _ in range(200):
        assert skew(list(Counter(luck.choices(range(8), k=400)).values())).even
    assert not skew([2000, 1000, 1000, 1000]).even
    # far from what luck does, and not worth a word
    assert skew([1_010_000, 1_000_000, 990_000]).p < 1e-9
    assert skew([1_010_000, 1_000_000, 990_000]).even


@pytest.mark.parametrize(
    ("distance", "freedom", "p"),
    [(3.841, 1, 0.05), (6.635, 1, 0.01), (16.266, 3, 0.001), (124.342, 100, 0.05), (1074.679, 1000, 0.05)],
)
def test_chi_square_is_that_of_the_tables(distance: float, freedom: int, p: float) -> None:
    assert chi_square_p(distance, freedom) == pytest.approx(p, rel=2e-3)


def test_many_degrees_of_freedom_go_on_smoothly() -> None:
    assert chi_square_p(1075.0, 1000) == pytest.approx(chi_square_p(1076.05, 1001), rel=0.02)


@given(st.integers(0, 10**10))
def test_a_bucket_is_as_exact_as_it_says(milliseconds: int) -> None:
    value = bucket_value(bucket_of(milliseconds))
    assert value == milliseconds if milliseconds < 64 else abs(value / milliseconds - 1) < 0.026


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=200))
def test_percentiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    found = percentiles(Counter(map(bucket_of, values)))
    assert found is not None
    ordered = sorted(values)
    for part, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99), (0.999, found.p999), (1, found.most)):
        exact = ordered[max(0, -(-int(part * 1000) * len(ordered) // 1000) - 1)]
        assert value == pytest.approx(exact, rel=0.026)
    assert found.count == len(values)


def test_nothing_has_no_percentiles() -> None:
    assert percentiles({}) is None
    assert skew([]).peak < inf
