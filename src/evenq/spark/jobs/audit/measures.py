"""How even some loads are, and percentiles of what was counted in buckets. Pure, standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erfc, exp, floor, lgamma, log, sqrt

__all__ = [
    "EVEN",
    "SURE",
    "Percentiles",
    "Skew",
    "bucket_of",
    "bucket_value",
    "chi_square_p",
    "percentiles",
    "skew",
    "skew_counted",
]

# The fullest may have so many times the mean, and still everybody is content.
EVEN = 1.25
# How unlikely loads must be under pure luck before they are called uneven.
SURE = 0.001

# Milliseconds up to here have a bucket each; above, a bucket is 5% wide.
EXACT = 64
WIDTH = 1.05


@dataclass(frozen=True, slots=True)
class Skew:
    """How far some loads are from even.

    ``peak`` is the fullest over the mean, ``gini`` 0 where all are equal and near 1 where one has everything;
    ``chi_square`` measures against the same chance for everybody, and ``p`` is how often pure luck is as uneven.
    """

    parts: int
    mean: float
    peak: float
    gini: float
    chi_square: float
    p: float

    @property
    def even(self) -> bool:
        """Uneven is only what matters and is no luck: with millions of messages chance is ruled out for trifles too."""
        return self.peak < EVEN or self.p >= SURE


def skew(loads: Sequence[int]) -> Skew:
    """
    >>> found = skew([400, 100, 100, 200])
    >>> found.peak, found.gini, found.chi_square, found.even
    (2.0, 0.3125, 300.0, False)
    >>> skew([26, 24, 25, 25]).even, skew([3, 0, 1, 0]).even, skew([]).even
    (True, True, True)
    """
    return skew_counted(Counter(loads))


def skew_counted(parts: Mapping[int, int]) -> Skew:
    """The same from how many parts have which load, which is short where there are millions of them.

    >>> skew_counted({2: 3, 4: 1}) == skew([2, 4, 2, 2])
    True
    """
    count, total = sum(parts.values()), sum(load * many for load, many in parts.items())
    if not total:
        return Skew(count, 0.0, 1.0, 0.0, 0.0, 1.0)
    mean = total / count
    weighted, before, distance = 0.0, 0, 0.0
    for load, many in sorted(parts.items()):
        # the ranks from before + 1 to before + many, all with this load
        weighted += load * many * (before + (many + 1) / 2)
        before += many
        distance += many * (load - mean) ** 2 / mean
    return Skew(
        count,
        mean,
        max(parts) / mean,
        (2 * weighted - (count + 1) * total) / (count * total),
        distance,
        chi_square_p(distance, count - 1),
    )


def chi_square_p(distance: float, freedom: int) -> float:
    """How often chance alone is at least so far from what is expected: the upper tail of chi-square.

    >>> round(chi_square_p(7.815, 3), 4), round(chi_square_p(18.307, 10), 4), chi_square_p(0.0, 3)
    (0.05, 0.05, 1.0)
    """
    if freedom < 1 or distance <= 0:
        return 1.0
    if freedom > 1000:
        # Wilson and Hilferty: the cube root is all but normal
        spread = 2 / (9 * freedom)
        return 0.5 * erfc(((distance / freedom) ** (1 / 3) - 1 + spread) / sqrt(2 * spread))
    return _upper_gamma(freedom / 2, distance / 2)


def _upper_gamma(shape: float, x: float) -> float:
    """The regularised upper incomplete gamma function, by the series below the middle and the fraction above it."""
    scale = exp(shape * log(x) - x - lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        step = shape
        while term > total * 1e-15:
            step += 1
            term *= x / step
            total += term
        return max(0.0, 1 - total * scale)
    # Lentz's way through the continued fraction
    tiny = 1e-300
    b = x + 1 - shape
    c, d = 1 / tiny, 1 / b
    found = d
    for number in range(1, 10_000):
        factor = -number * (number - shape)
        b += 2
        d = 1 / (factor * d + b or tiny)
        c = b + factor / c or tiny
        found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return min(1.0, found * scale)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of some durations in milliseconds; right to 2.5%, and exact below 64 ms."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    most: float


def bucket_of(milliseconds: int) -> int:
    """The bucket of a duration. Spark counts by the same rule (``facts.bucket``). What is below 0 is a clock's error.

    >>> bucket_of(-3), bucket_of(63), bucket_of(64), bucket_of(68), bucket_of(60_000)
    (0, 63, 64, 65, 204)
    """
    if milliseconds < EXACT:
        return max(0, milliseconds)
    return EXACT + floor(log(milliseconds / EXACT) / log(WIDTH))


def bucket_value(bucket: int) -> float:
    """The middle of a bucket.

    >>> bucket_value(17), round(bucket_value(204))
    (17.0, 60712)
    """
    return float(bucket) if bucket < EXACT else EXACT * WIDTH ** (bucket - EXACT + 0.5)


def percentiles(counts: Mapping[int, int]) -> Percentiles | None:
    """Of what was counted by bucket; None where nothing was.

    >>> percentiles({1: 98, 5: 1, 7: 1}).p99
    5.0
    """
    total = sum(counts.values())
    if not total:
        return None
    marks = [0.5, 0.9, 0.99, 0.999, 1.0]
    found: list[float] = []
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        while len(found) < len(marks) and seen >= marks[len(found)] * total - 1e-9:
            found.append(bucket_value(bucket))
    return Percentiles(total, *found)
