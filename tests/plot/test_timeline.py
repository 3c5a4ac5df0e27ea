from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from evenq.plot.timeline import lines, strips, time_ticks

SVG = "{http://www.w3.org/2000/svg}"
BEGAN = 1_790_000_000_000


@given(st.integers(0, 2 * 10**12), st.integers(1, 10**11), st.integers(2, 12))
def test_ticks_are_round_few_and_inside(first: int, span: int, most: int) -> None:
    ticks = time_ticks(first, first + span, most)
    times = [at for at, _ in ticks]
    assert len(ticks) <= most + 1 or span > most * 2_592_000_000
    assert all(first <= at <= first + span for at in times)
    assert len({later - at for at, later in pairwise(times)}) <= 1


def test_a_line_goes_through_its_points() -> None:
    picture = lines({"a": [(BEGAN, 0), (BEGAN + 1000, 10), (BEGAN + 2000, 5)]}, title="x", unit="messages", filled=True)
    root = ElementTree.fromstring(str(picture))
    (line,) = root.iter(f"{SVG}polyline")
    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert places[1][1] < places[2][1] < places[0][1]
    assert len(list(root.iter(f"{SVG}polygon"))) == 1


def test_several_lines_have_a_legend() -> None:
    one = str(lines({"broker-a": [(BEGAN, 1)]}, title="x", unit="y"))
    two = str(lines({"broker-a": [(BEGAN, 1)], "broker-b": [(BEGAN, 2)]}, title="x", unit="y"))
    assert ">broker-b<" in two
    assert ">broker-a<" not in one


def test_strips_show_who_had_what() -> None:
    rows = {
        "q0": [(BEGAN, BEGAN + 500, "ann"), (BEGAN + 500, BEGAN + 1000, "bob")],
        "q1": [(BEGAN, BEGAN + 1000, "ann")],
    }
    root = ElementTree.fromstring(str(strips(rows, title="x", who=["bob", "ann"])))
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    said = [title.text for rect in found if (title := rect.find(f"{SVG}title")) is not None]
    assert said == ["q0: ann", "q0: bob", "q1: ann"]
    fills = [rect.attrib["fill"] for rect in found]
    assert fills[0] == fills[2] != fills[1]
    widths = [float(rect.attrib["width"]) for rect in found]
    assert abs(widths[0] + widths[1] - widths[2]) < 0.1


def test_nothing_is_a_picture_too() -> None:
    ElementTree.fromstring(str(lines({}, title="x", unit="y")))
    ElementTree.fromstring(str(strips({}, title="x")))
