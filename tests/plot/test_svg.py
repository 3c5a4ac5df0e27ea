"""The SVG writer: well-formed whatever it is given, and where it is told."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.plot.svg import COLORS, Picture, color, ink_on, text_width, wrap

SVG = "{http://www.w3.org/2000/svg}"
words = st.text(st.characters(exclude_categories=["Cc", "Cs", "Co", "Cn"]), min_size=1)


def parse(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(str(picture))


@given(words, words, words, words)
def test_any_text_survives(title: str, description: str, text: str, hint: str) -> None:
    picture = Picture(100, 50, title=title, description=description)
    picture.text(1, 2, text, anchor="middle", bold=True, turned=True, halo=True)
    picture.rect(0, 0, 1, 1, fill="#ffffff", hint=hint)
    root = parse(picture)
    assert [element.text for element in (root[0], root[1], root[3], root[4][0])] == [title, description, text, hint]


def test_attributes_are_as_given() -> None:
    picture = Picture(200, 100.5, title="t")
    picture.rect(1, 2.126, 30, 40, stroke="#000000", stroke_width=2, dash="2 2", radius=3)
    picture.circle(5, 6, 7, fill="red")
    picture.line(0, 1, 2, 3, stroke="blue")
    root = parse(picture)
    assert (root.get("viewBox"), root.get("role")) == ("0 0 200 100.5", "img")
    background, rect, circle, line = root[1:]
    assert background.attrib == {"width": "100%", "height": "100%", "fill": "#ffffff"}
    assert rect.attrib == {
        "x": "1",
        "y": "2.13",
        "width": "30",
        "height": "40",
        "rx": "3",
        "fill": "none",
        "stroke": "#000000",
        "stroke-width": "2",
        "stroke-dasharray": "2 2",
    }
    assert (circle.get("r"), line.get("y2")) == ("7", "3")


def test_a_picture_within_a_picture_is_moved_as_a_whole(tmp_path: Path) -> None:
    inner = Picture(10, 10, title="inner")
    inner.text(1, 1, "here")
    outer = Picture(100, 100, title="outer")
    outer.place(inner, 20, 30.5)
    outer.save(tmp_path / "outer.svg")
    (group,) = ElementTree.parse(tmp_path / "outer.svg").iter(f"{SVG}g")
    assert group.get("transform") == "translate(20 30.5)"
    assert [element.text for element in group] == ["here"]


def test_colours_differ_and_can_be_written_on() -> None:
    assert len(set(COLORS)) == len(COLORS)
    assert color(len(COLORS)) == color(0)
    assert (ink_on("#ffffff"), ink_on("#000000"), ink_on("#0072b2")) == ("#1f2933", "#ffffff", "#ffffff")


@given(st.lists(st.text("abcMW_1", min_size=1, max_size=12), min_size=1, max_size=20), st.integers(80, 400))
def test_wrapped_lines_fit_and_lose_nothing(parts: list[str], width: int) -> None:
    lines = wrap(" ".join(parts), 12, width)
    assert " ".join(lines).split() == parts
    assert all(text_width(line, 12) <= width or " " not in line for line in lines)


def test_text_width_grows_with_text_and_size() -> None:
    assert text_width("MM", 12) == pytest.approx(2 * text_width("M", 12))
    assert text_width("i", 12) < text_width("M", 12) < text_width("M", 24)
