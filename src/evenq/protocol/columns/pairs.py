"""Properties of many messages at once: where each name and each value is, found with numpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenq.protocol.columns.arrays import numbers
from evenq.protocol.columns.cutting import Bytes, Ints, cut, is_ascii, strings, words
from evenq.protocol.windows import windows

__all__ = ["Pairs", "find_pairs"]

_NAME_END = 1
_VALUE_END = 2
_WORD = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Pairs:
    """All name-value pairs of some messages, in order.

    ``text`` holds the properties of all messages, one after the other: those of message i are
    ``text[bounds[i]:bounds[i + 1]]``. Where all messages have the same names in the same order, as they mostly do,
    these are ``common``.
    """

    text: Bytes
    bounds: Ints
    name_at: Ints
    name_end: Ints
    value_at: Ints
    value_end: Ints
    common: list[bytes]
    ascii_only: bool

    @cached_property
    def pair_bounds(self) -> Ints:
        """The pairs of message i are those from ``pair_bounds[i]`` up to ``pair_bounds[i + 1]``."""
        return np.searchsorted(self.name_at, self.bounds)

    @cached_property
    def rows(self) -> Ints:
        """Which message each pair belongs to."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.pair_bounds))

    def column(self, name: bytes) -> pa.Array:
        """The value of one property for each message, null where it has none. Of two, the last one counts."""
        count, common = len(self.bounds) - 1, self.common
        if common:
            if name not in common:
                return pa.nulls(count, pa.string())
            last = slice(len(common) - 1 - common[::-1].index(name), None, len(common))
            return self._texts(self.value_at[last], self.value_end[last])
        found = self._named(name)
        if not len(found):
            return pa.nulls(count, pa.string())
        row = self.rows[found]
        present = np.zeros(count, np.bool_)
        present[row] = True
        # an empty piece that keeps the order stands where there is nothing
        begins, ends = self.bounds[:-1].copy(), self.bounds[:-1].copy()
        begins[row] = self.value_at[found]
        ends[row] = self.value_end[found]
        return self._texts(begins, ends, present)

    def _texts(self, begins: Ints, ends: Ints, present: NDArray[np.bool_] | None = None) -> pa.Array:
        return strings(cut(self.text, begins, ends), present=present, ascii_only=self.ascii_only)

    def _named(self, name: bytes) -> Ints:
        size = len(name)
        found = np.flatnonzero(self.name_end - self.name_at == size)
        names = words(self.text, self.name_at[found], size)
        same: Ints = found[names == np.frombuffer(name, names.dtype)]
        return same

    def maps(self) -> pa.Array:
        """All properties of each message, as a column of maps."""
        pairs = self._without_repeated()
        names = pairs._texts(pairs.name_at, pairs.name_end)
        values = pairs._texts(pairs.value_at, pairs.value_end)
        return pa.MapArray.from_arrays(numbers(pairs.pair_bounds.astype(np.int32)), names, values)

    def _without_repeated(self) -> Pairs:
        """The pairs whose name does not come again in the same message: a map must not have a name twice."""
        repeated = self._repeated() if len(set(self.common)) < max(len(self.common), 1) else []
        if not repeated:
            return self
        kept = np.delete(np.arange(len(self.name_at)), repeated)
        name_at, name_end = self.name_at[kept], self.name_end[kept]
        value_at, value_end = self.value_at[kept], self.value_end[kept]
        return Pairs(self.text, self.bounds, name_at, name_end, value_at, value_end, [], self.ascii_only)

    def _repeated(self) -> list[int]:
        rows = self.rows
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
    common = _common_names(text, bounds, name_at, name_end)
    return Pairs(text, bounds, name_at, name_end, value_at, value_end, common, is_ascii(text))


def _common_names(text: Bytes, bounds: Ints, name_at: Ints, name_end: Ints) -> list[bytes]:
    """The names of every message, if all have the same; else none."""
    count = len(bounds) - 1
    each, more = divmod(len(name_at), max(count, 1))
    if not each or more or not (name_at[::each] == bounds[:-1]).all():
        return []
    sizes = (name_end - name_at).reshape(count, each)
    if not (sizes == sizes[0]).all():
        return []
    names: list[bytes] = []
    for place, size in enumerate(sizes[0].tolist()):
        found = words(text, name_at[place::each], size)
        if not (found == found[:1]).all():
            return []
        names.append(found[0].tobytes())
    return names


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
