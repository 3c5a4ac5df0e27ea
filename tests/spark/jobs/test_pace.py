"""Rates, times left and the line that tells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.spark.jobs.pace import Pace, State, duration, sentence


def test_nothing_is_told_before_there_is_something_to_tell_it_from() -> None:
    pace = Pace()
    assert (pace.rate, pace.left(100)) == (None, None)
    pace.note(5.0, 10)
    assert (pace.rate, pace.left(100)) == (None, None)
    pace.note(5.0, 20)
    assert pace.rate is None


def test_the_rate_is_that_of_the_last_while() -> None:
    pace = Pace(window=10.0)
    for second in range(100):
        pace.note(second, second)
    for second in range(1, 21):
        pace.note(99 + second, 99 + 50 * second)
    assert pace.rate == 50
    assert pace.left(99 + 50 * 20 + 500) == 10


def test_work_that_stands_still_has_no_time_left_to_tell() -> None:
    pace = Pace(window=10.0)
    pace.note(0, 5)
    pace.note(20, 5)
    assert pace.rate == 0
    assert pace.left(10) is None
    assert sentence(State(5, 10, note="waiting"), pace) == "5 of 10 rows, 0 a second, waiting"


@given(st.lists(st.tuples(st.floats(0.01, 100), st.integers(0, 1000)), min_size=2, max_size=50))
def test_the_rate_is_never_beyond_what_was_seen(steps: list[tuple[float, int]]) -> None:
    pace, now, done = Pace(), 0.0, 0
    rates = []
    pace.note(now, done)
    for seconds, more in steps:
        now, done = now + seconds, done + more
        rates.append(more / seconds)
        pace.note(now, done)
    assert pace.rate is not None
    assert min(rates) * 0.999 <= pace.rate <= max(rates) * 1.001 + 1e-9
    left = pace.left(done + 10)
    assert left is None or left >= 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min"), (60, "1 min"), (3599.6, "1 h"), (86_400 * 3, "3 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
