"""A small SVG writer: shapes and text on a white page, pictures within pictures.

>>> picture = Picture(120, 40, title="One bar")
>>> picture.rect(10, 10, 100, 20, fill=color(0), hint="42 queues")
>>> str(picture).startswith('<svg xmlns="http://www.w3.org/2000/svg" width="120" height="40"')
True
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Literal

__all__ = ["FAINT", "GOOD", "GOOD_INK", "GRID", "INK", "MUTED", "Picture", "color", "ink_on", "text_width", "wrap"]

Anchor = Literal["start", "middle", "end"]

FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
INK, MUTED, FAINT, GRID = "#1f2933", "#616e7c", "#9aa5b1", "#e4e7eb"
GOOD, GOOD_INK = "#e3f5ec", "#00694d"

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, and lighter and darker kin of
# them for the ninth and later.
COLORS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a5195", "#f0e442",
    "#66aad1", "#f0c566", "#66c5ab", "#e0afca", "#99d2f1", "#e69e66", "#8c8c8c", "#4d4d4d",
)  # fmt: skip


# Of the letters that are far from the usual width, as a share of the font's size.
WIDTHS = (("ijl.,:;|!'()[] ", 0.36), ("ftr-", 0.4), ("mwMW@%", 0.95), ("ABCDEGHKNOPQRSUVXYZ", 0.72), ("_", 0.5))


def color(number: int) -> str:
    """A colour for the thing of that number; they begin again after sixteen."""
    return COLORS[number % len(COLORS)]


def ink_on(fill: str) -> str:
    """Black or white, whichever can be read on ``fill``."""
    red, green, blue = (int(fill[at : at + 2], 16) for at in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def text_width(text: str, size: float) -> float:
    """About how wide a text is in the widest of the fonts."""
    return sum(next((width for chars, width in WIDTHS if char in chars), 0.63) for char in text) * size


def wrap(text: str, size: float, width: float) -> list[str]:
    """The text in lines that fit."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


class Picture:
    """A page of a fixed size. Coordinates are pixels from the top left; text stands on its ``y``."""

    def __init__(self, width: float, height: float, *, title: str, description: str = "") -> None:
        self.width, self.height = width, height
        self.title, self.description = title, description
        self._elements: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str | None = None,
        stroke_width: float = 1,
        dash: str | None = None,
        radius: float = 0,
        hint: str = "",
    ) -> None:
        """``hint`` is shown by a browser while the mouse is over it."""
        self._add(
            "rect",
            {"x": x, "y": y, "width": width, "height": height, "rx": radius or None}
            | _paint(fill, stroke, stroke_width, dash),
            _hint(hint),
        )

    def circle(
        self, x: float, y: float, radius: float, *, fill: str, stroke: str | None = None, hint: str = ""
    ) -> None:
        self._add("circle", {"cx": x, "cy": y, "r": radius} | _paint(fill, stroke, 1.5, None), _hint(hint))

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, stroke: str, width: float = 1, dash: str | None = None
    ) -> None:
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2} | _paint(None, stroke, width, dash))

    def path(self, points: Sequence[tuple[float, float]], *, stroke: str, width: float = 1, hint: str = "") -> None:
        """A line through all points."""
        shown = {"points": _points(points), "stroke-linejoin": "round"}
        self._add("polyline", shown | _paint("none", stroke, width, None), _hint(hint))

    def polygon(self, points: Sequence[tuple[float, float]], *, fill: str, opacity: float = 1) -> None:
        self._add("polygon", {"points": _points(points), "fill": fill, "fill-opacity": opacity})

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        size: float = 13,
        anchor: Anchor = "start",
        bold: bool = False,
        fill: str = INK,
        turned: bool = False,
        halo: bool = False,
    ) -> None:
        """``turned`` text runs upwards; one with a ``halo`` can be read across a line."""
        attributes: dict[str, object] = {"x": x, "y": y, "font-size": size, "fill": fill}
        if anchor != "start":
            attributes["text-anchor"] = anchor
        if bold:
            attributes["font-weight"] = 600
        if halo:
            attributes |= {"stroke": "#ffffff", "stroke-width": 6, "paint-order": "stroke"}
        if turned:
            attributes["transform"] = f"rotate(-90 {_number(x)} {_number(y)})"
        self._add("text", attributes, escape(content, quote=False))

    def place(self, other: Picture, x: float, y: float) -> None:
        """Another picture inside this one, its top left corner at x, y."""
        self._elements.append(f'<g transform="translate({_number(x)} {_number(y)})">')
        self._elements += other._elements
        self._elements.append("</g>")

    def __str__(self) -> str:
        size = f'width="{_number(self.width)}" height="{_number(self.height)}"'
        box = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} role="img" font-family="{FONT}">',
            f"<title>{escape(self.title, quote=False)}</title>",
            *([f"<desc>{escape(self.description, quote=False)}</desc>"] if self.description else []),
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
        return "\n".join([*head, *self._elements, "</svg>", ""])

    def save(self, path: str | Path) -> None:
        Path(path).write_text(str(self), encoding="utf-8")

    def _add(self, tag: str, attributes: dict[str, object], content: str = "") -> None:
        written = " ".join(f'{name}="{_value(value)}"' for name, value in attributes.items() if value is not None)
        self._elements.append(f"<{tag} {written}>{content}</{tag}>" if content else f"<{tag} {written}/>")


def _paint(fill: str | None, stroke: str | None, width: float, dash: str | None) -> dict[str, object]:
    return {
        "fill": fill,
        "stroke": stroke,
        "stroke-width": width if stroke and width != 1 else None,
        "stroke-dasharray": dash,
    }


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _hint(text: str) -> str:
    return f"<title>{escape(text, quote=False)}</title>" if text else ""


def _value(value: object) -> str:
    return _number(value) if isinstance(value, int | float) else escape(str(value))


def _number(value: float) -> str:
    """Two decimals at most, and none where there are none."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
