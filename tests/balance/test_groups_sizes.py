"""Sizes of groups: what people write, and how often each size comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.balance.groups_sizes import MOST_SHAPES, Shape, Sizes, divide, shapes_of
from evenq.errors import ArgumentError

texts = st.one_of(
    st.integers(1, 500).map(str),
    st.builds("uniform:{}-{}".format, st.integers(1, 9), st.integers(10, 90)),
    st.builds("zipf:{}:{}-{}".format, st.floats(0.5, 3).map("{:.2f}".format), st.integers(1, 9), st.integers(10, 90)),
    st.builds("lognormal:{}:0.8:{}-{}".format, st.integers(1, 40), st.integers(1, 9), st.integers(10, 90)),
)


@given(texts)
def test_chances_add_up_to_one_within_the_range(text: str) -> None:
    sizes = Sizes.parse(text)
    assert sum(sizes.chances.values()) == pytest.approx(1)
    assert all(chance > 0 for chance in sizes.chances.values())
    if ":" in text:
        low, high = map(int, text.rpartition(":")[2].split("-"))
        assert set(sizes.chances) <= set(range(low, high + 1))


def test_each_kind_has_its_own_form() -> None:
    assert Sizes.parse("16").fixed == 16
    assert Sizes.parse("uniform:4-64").fixed is None
    zipf = Sizes.parse("zipf:2:1-10").chances
    assert zipf[1] / zipf[3] == pytest.approx(9)
    lognormal = Sizes.parse("lognormal:8:0.7:1-1000").chances
    assert sum(chance for size, chance in lognormal.items() if size < 8) == pytest.approx(0.5, abs=0.05)
    assert max(lognormal, key=lambda size: lognormal[size]) < 8, "it leans to the left"


@given(texts, texts, st.integers(1, 100_000), st.integers(0, 2**32))
def test_all_groups_are_divided_among_the_shapes_and_the_same_way_again(
    queues: str, members: str, groups: int, seed: int
) -> None:
    shapes = shapes_of(Sizes.parse(queues), Sizes.parse(members))
    counts = divide(groups, shapes, seed)
    assert sum(counts.values()) == groups
    assert counts.keys() <= shapes.keys()
    assert counts == divide(groups, shapes, seed)


def test_shapes_come_about_as_often_as_they_should() -> None:
    counts = divide(1_000_000, shapes_of(Sizes.parse("uniform:1-2"), Sizes.parse("uniform:1-5")), seed=3)
    assert len(counts) == 10
    assert all(abs(count - 100_000) < 2_000 for count in counts.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "queues=0: give at least 1"),
        ("-3", "queues=-3: give at least 1"),
        ("many", "queues='many': give a number, or uniform:LOW-HIGH"),
        ("uniform:4", "queues='uniform:4': give a number, or uniform"),
        ("uniform:9-4", "queues='uniform:9-4': the sizes go from 1 to 10000 at most, the lower one first"),
        ("uniform:0-4", "queues='uniform:0-4': the sizes go from 1"),
        ("zipf:1-64", "queues='zipf:1-64': give a number, or"),
        ("zipf:x:1-64", "queues='zipf:x:1-64': give a number, or"),
        ("zipf:-1:1-64", "queues='zipf:-1:1-64': give a number, or"),
        ("lognormal:8:1-64", "queues='lognormal:8:1-64': give a number, or"),
        ("lognormal:1:0.001:900-999", "queues='lognormal:1:0.001:900-999': next to nothing of it"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Sizes.parse(text, argument="queues")
    assert str(caught.value).startswith(message)


def test_too_many_shapes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="give narrower ranges"):
        divide(10, {Shape(queues, 1): 1.0 for queues in range(1, MOST_SHAPES + 2)}, seed=0)
