"""Charts: everything is named, nothing is written over something else."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from evenq.plot.charts import Point, bars, scatter
from evenq.plot.svg import Picture, text_width

SVG = "{http://www.w3.org/2000/svg}"
values = st.floats(0, 1000)


def elements(picture: Picture, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(str(picture)).iter(f"{SVG}{tag}"))


def drawn(points: list[Point], ideal: tuple[float, float]) -> Picture:
    return scatter(points, title="Points", x_label="x", y_label="y", ideal=ideal, ideal_label="least")


@given(st.lists(st.tuples(values, values), min_size=1, max_size=8), st.tuples(values, values))
def test_every_point_is_on_the_page_and_no_two_labels_touch(
    places: list[tuple[float, float]], ideal: tuple[float, float]
) -> None:
    points = [Point(f"NAME_{number}", x, y, f"hint {number}") for number, (x, y) in enumerate(places)]
    picture = drawn(points, ideal)
    circles = elements(picture, "circle")
    assert sorted(circle[0].text or "" for circle in circles) == [point.hint for point in points]
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= picture.width
        assert 0 <= float(circle.attrib["cy"]) <= picture.height
    labels = [element for element in elements(picture, "text") if (element.text or "").startswith("NAME_")]
    assert sorted(", ".join(label.text or "" for label in labels).split(", ")) == [point.name for point in points]
    boxes = [(float(label.attrib["x"]), float(label.attrib["y"]), label.text or "") for label in labels]
    for (x, y, text), (other_x, other_y, other) in combinations(boxes, 2):
        apart = x + text_width(text, 12) <= other_x or other_x + text_width(other, 12) <= x
        assert apart or abs(y - other_y) >= 12


def test_higher_is_higher_and_further_is_further() -> None:
    high, low = elements(drawn([Point("a", 1, 1, "low"), Point("b", 2, 9, "high")], (1, 1)), "circle")
    assert [circle[0].text for circle in (low, high)] == ["low", "high"]
    assert float(low.attrib["cy"]) > float(high.attrib["cy"])
    assert float(low.attrib["cx"]) < float(high.attrib["cx"])


def test_points_in_the_same_place_share_a_label_and_are_all_seen() -> None:
    picture = drawn([Point("a", 1, 5, "one"), Point("b", 1, 5, "two")], (1, 1))
    assert "a, b" in [text.text for text in elements(picture, "text")]
    assert [circle.get("r") for circle in elements(picture, "circle")] == ["6.5", "4.5"]


def test_bars_have_the_heights_of_their_shares() -> None:
    picture = bars({"even": {3: 0.8, 4: 0.2}, "wide": {0: 0.4, 9: 0.6}}, title="Loads", x_label="queues", columns=2)
    heights = [float(bar.attrib["height"]) for bar in elements(picture, "rect")[1:]]
    assert [round(height / heights[0], 2) for height in heights] == [1, 0.25, 0.5, 0.75]
    texts = [element.text for element in elements(picture, "text")]
    assert {"Loads", "even", "wide", "80%", "60%", "9", "queues"} <= set(texts)
