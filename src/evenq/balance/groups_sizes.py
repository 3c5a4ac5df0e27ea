"""How large groups are: how many queues and members, always the same or as often as a distribution has it.

>>> Sizes.parse("16").chances
{16: 1.0}
>>> Sizes.parse("uniform:1-4").chances
{1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf, log, sqrt

from evenq.errors import ArgumentError

__all__ = ["LARGEST", "Shape", "Shapes", "Sizes", "divide", "shapes_of"]

# A pool of names is made for each shape: more of them than this would take longer than the groups.
MOST_SHAPES = 10_000
LARGEST = 10_000

WAY_OUT = (
    "give a number, or uniform:LOW-HIGH, zipf:EXPONENT:LOW-HIGH or lognormal:MEDIAN:SIGMA:LOW-HIGH, "
    "e.g. 16, uniform:4-64, zipf:1.5:1-64, lognormal:8:0.7:1-64"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What groups of one kind have in common."""

    queues: int
    members: int


Shapes = Mapping[Shape, float]
"""How often each shape comes: shares of the whole, or numbers of groups."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A size, or a distribution of sizes. ``chances`` add up to one."""

    text: str
    chances: Mapping[int, float]

    @classmethod
    def parse(cls, text: str, *, argument: str = "sizes") -> Sizes:
        """Read what people write: see the error for how."""
        words = text.split(":")
        if len(words) == 1 and re.fullmatch(r"-?\d+", text):
            if int(text) < 1:
                raise ArgumentError(argument, int(text), "give at least 1")
            return cls(text, {int(text): 1.0})
        kind, span = words[0], re.fullmatch(r"(\d+)-(\d+)", words[-1])
        if kind not in _KINDS or span is None:
            raise ArgumentError(argument, text, WAY_OUT)
        low, high = int(span[1]), int(span[2])
        if not 1 <= low <= high <= LARGEST:
            raise ArgumentError(argument, text, f"the sizes go from 1 to {LARGEST} at most, the lower one first")
        count, mass = _KINDS[kind]
        try:
            numbers = [float(word) for word in words[1:-1]]
        except ValueError:
            raise ArgumentError(argument, text, WAY_OUT) from None
        if len(numbers) != count or not all(number > 0 for number in numbers):
            raise ArgumentError(argument, text, WAY_OUT)
        masses = {size: mass(size, *numbers) for size in range(low, high + 1)}
        total = sum(masses.values())
        if not total > 0:
            raise ArgumentError(argument, text, "next to nothing of it is between these sizes: give others")
        return cls(text, {size: part / total for size, part in masses.items() if part > 0})

    @property
    def fixed(self) -> int | None:
        """The size, where there is only one."""
        return next(iter(self.chances)) if len(self.chances) == 1 else None


def _lognormal(size: int, median: float, sigma: float) -> float:
    """How much of it is nearest to that size."""

    def below(value: float) -> float:
        return 0.0 if value <= 0 else (1 + erf(log(value / median) / (sigma * sqrt(2)))) / 2

    return below(size + 0.5) - below(size - 0.5)


_KINDS: dict[str, tuple[int, Callable[..., float]]] = {
    "uniform": (0, lambda size: 1.0),
    "zipf": (1, lambda size, exponent: size**-exponent),
    "lognormal": (2, _lognormal),
}


def shapes_of(queues: Sizes, members: Sizes) -> dict[Shape, float]:
    """Every combination, as often as chance brings the two together."""
    return {
        Shape(queue, member): chance * other
        for queue, chance in queues.chances.items()
        for member, other in members.chances.items()
    }


def divide(groups: int, shapes: Shapes, seed: int) -> dict[Shape, int]:
    """How many of the groups have each shape, drawn by chance; the same for the same seed.

    >>> divide(10, {Shape(8, 2): 1.0}, seed=1)
    {Shape(queues=8, members=2): 10}
    """
    if len(shapes) > MOST_SHAPES:
        combinations = f"{len(shapes):,} combinations of queues and members"
        raise ArgumentError("sizes", combinations, f"give narrower ranges: up to {MOST_SHAPES:,} can be told apart")
    import numpy as np  # not needed where there is one group only

    chances = np.array(list(shapes.values()))
    counts = np.random.default_rng([seed, 2]).multinomial(groups, chances / chances.sum())
    return {shape: count for shape, count in zip(shapes, counts.tolist(), strict=True) if count}
