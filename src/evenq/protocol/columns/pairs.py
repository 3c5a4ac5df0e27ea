"""Properties of many messages at once: where each name and each value is, found with numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenq.protocol.columns.arrays import numbers
from evenq.protocol.columns.cutting import Bytes, Ints, cut, strings
from evenq.protocol.windows import windows

__all__ = ["Pairs", "find_pairs"]

_NAME_END = 1
_VALUE_END = 2
_WORD = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Pairs:
    """All name-value pairs of some messages, in order.

    ``text`` holds the properties of all messages, one after the other: those of message i are
    ``text[bounds[i]:bounds[i + 1]]``.
    """

    text: Bytes
    bounds: Ints
    name_at: Ints
    name_end: Ints
    value_at: Ints
    value_end: Ints

    @property
    def pair_bounds(self) -> Ints:
        """The pairs of message i are those from ``pair_bounds[i]`` up to ``pair_bounds[i + 1]``."""
        return np.searchsorted(self.name_at, self.bounds)

    def rows(self) -> Ints:
        """Which message each pair belongs to."""
        count = len(self.bounds) - 1
        if count and not len(self.name_at) % count:
            # mostly all have as many
            each = len(self.name_at) // count
            if each and (self.name_at[::each] == self.bounds[:-1]).all():
                return np.repeat(np.arange(count), each)
        return np.repeat(np.arange(count), np.diff(self.pair_bounds))

    def column(self, name: bytes, rows: Ints) -> pa.Array:
        """The value of one property for each message, null where it has none. Of two, the last one counts."""
        found = self._named(name)
        if not len(found):
            return pa.nulls(len(self.bounds) - 1, pa.string())
        row = rows[found]
        if len(row) == len(self.bounds) - 1 and (row == np.arange(len(row))).all():
            return strings(cut(self.text, self.value_at[found], self.value_end[found]))
        present = np.zeros(len(self.bounds) - 1, np.bool_)
        present[row] = True
        # an empty piece that keeps the order stands where there is nothing
        begins, ends = self.bounds[:-1].copy(), self.bounds[:-1].copy()
        begins[row] = self.value_at[found]
        ends[row] = self.value_end[found]
        return strings(cut(self.text, begins, ends), present=present)

    def _named(self, name: bytes) -> Ints:
        size = len(name)
        found = np.flatnonzero(self.name_end - self.name_at == size)
        word = np.dtype(f"u{size}") if size in (4, 8) else np.dtype((np.void, size))
        names = windows(self.text, size)[self.name_at[found]].view(word)
        same: Ints = found[names == np.frombuffer(name, word)]
        return same

    def maps(self) -> pa.Array:
        """All properties of each message, as a column of maps."""
        names = strings(cut(self.text, self.name_at, self.name_end))
        values = strings(cut(self.text, self.value_at, self.value_end))
        return pa.MapArray.from_arrays(numbers(self.pair_bounds.astype(np.int32)), names, values)

    def without_repeated(self, rows: Ints) -> Pairs:
        """The pairs whose name does not come again in the same message: a map must not have a name twice."""
        repeated = self._repeated(rows)
        if not repeated:
            return self
        kept = np.delete(np.arange(len(rows)), repeated)
        arrays = (self.name_at, self.name_end, self.value_at, self.value_end)
        return Pairs(self.text, self.bounds, *(array[kept] for array in arrays))

    def _repeated(self, rows: Ints) -> list[int]:
        prints = self._fingerprints()
        most = int(np.diff(self.pair_bounds).max(initial=0))
        found: list[int] = []
        for distance in range(1, most):
            alike = (prints[:-distance] == prints[distance:]) & (rows[:-distance] == rows[distance:])
            pairs: list[int] = np.flatnonzero(alike).tolist()
            found += [pair for pair in pairs if self._name(pair) == self._name(pair + distance)]
        return found

    def _name(self, pair: int) -> bytes:
        return self.text[self.name_at[pair] : self.name_end[pair]].tobytes()

    def _fingerprints(self) -> NDArray[np.uint64]:
        """A number for each name, from its length and its first and last bytes: equal names have equal ones."""
        size = self.name_end - self.name_at
        margin = np.zeros(_WORD, np.uint8)
        words = windows(np.concatenate((margin, self.text, margin)), _WORD)
        spare = (np.maximum(_WORD - size, 0) * 8).astype(np.uint64)
        first = words[self.name_at + _WORD].view(">u8").astype(np.uint64) >> spare
        last = words[self.name_end].view("<u8").astype(np.uint64) >> spare
        prints: NDArray[np.uint64] = first + last * _MIX + size.astype(np.uint64)
        return prints


def find_pairs(text: Bytes, bounds: Ints) -> Pairs:
    """Find the pairs of messages whose properties are ``text[bounds[i]:bounds[i + 1]]``."""
    marks = np.flatnonzero(text <= _VALUE_END)
    kinds = text[marks]
    filled = bounds[1:][bounds[:-1] < bounds[1:]]
    in_turn = (kinds[0::2] == _NAME_END).all() and (kinds[1::2] == _VALUE_END).all()
    if in_turn and (text[filled - 1] == _VALUE_END).all():
        name_end, value_end = marks[0::2], marks[1::2]
        name_at = _after(value_end + 1)
    else:
        name_at, name_end, value_end = _unusual(marks, kinds, text, filled)
    value_at = name_end + 1
    good = (name_at < name_end) & (value_at < value_end)
    if not good.all():
        name_at, name_end, value_at, value_end = (a[good] for a in (name_at, name_end, value_at, value_end))
    return Pairs(text, bounds, name_at, name_end, value_at, value_end)


def _after(ends: Ints) -> Ints:
    """Where each pair begins: the first at 0, the others where the one before is over."""
    begins = np.zeros_like(ends)
    begins[1:] = ends[:-1]
    return begins


def _unusual(marks: Ints, kinds: Bytes, text: Bytes, row_end: Ints) -> tuple[Ints, Ints, Ints]:
    """The same where the marks do not simply take turns: a last mark is missing, a name has no value, …"""
    stops = marks[kinds == _VALUE_END]
    open_end = row_end[text[row_end - 1] != _VALUE_END]
    # an open end comes before a mark at the same place, which is the first byte of the next message
    value_end = np.concatenate((open_end, stops))
    order = np.argsort(value_end, kind="stable")
    # a mark takes a byte of its own, the open end of a message does not
    name_at = _after(np.concatenate((open_end, stops + 1))[order])
    splits = np.append(marks[kinds == _NAME_END], len(text))
    name_end = splits[np.searchsorted(splits, name_at)]
    # without a mark of its own, a pair is all name and falls out for having no value
    return name_at, np.minimum(name_end, value_end[order]), value_end[order]
