"""Ticks and scales."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.plot.axes import Axes, Scale, round_ticks, tick_label
from evenq.plot.svg import Picture


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(3, 10))
def test_ticks_cover_the_range_in_equal_round_steps(low: float, span: float, most: int) -> None:
    ticks = round_ticks(low, low + span, most)
    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= low + span - 1e-9
    assert 2 <= len(ticks) <= most + 2
    steps = {round(b - a, 6) for a, b in pairwise(ticks)}
    assert len(steps) == 1 or max(steps) - min(steps) < 1e-5 * max(1, abs(low))
    assert f"{max(steps):e}"[0] in "1259", "a step begins with 1, 2 or 5"


def test_a_range_of_nothing_has_ticks_too() -> None:
    assert len(round_ticks(0, 0)) >= 1


def test_scale_and_labels() -> None:
    scale = Scale(0, 10, 100, 0)
    assert [scale(value) for value in (0, 5, 10)] == [100, 50, 0]
    assert (tick_label(1500), tick_label(0.25)) == ("1,500", "0.25")


def test_axes_write_every_tick_and_both_labels() -> None:
    picture = Picture(300, 200, title="t")
    axes = Axes(picture, 50, 10, 200, 100, x_ticks=[0, 1, 2], y_ticks=[0, 50])
    axes.draw("across", "upwards")
    texts = [element.text for element in ElementTree.fromstring(str(picture)).iter() if element.tag.endswith("text")]
    assert texts == ["0", "50", "0", "1", "2", "across", "upwards"]
    assert [axes.x(1), axes.y(25)] == pytest.approx([150, 60])
