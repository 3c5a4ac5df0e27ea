"""Pictures as SVG, written by hand: no package to install, and sharp at any size, in a report as in a browser."""

from evenq.plot.svg import Picture

__all__ = ["Picture"]
