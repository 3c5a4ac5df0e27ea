"""Finding the keys of many records at once, and their hashes, with numpy and without an object per message.

A message is found by its unique key and by each of its own keys. What the index holds of a key is Java's hash of
``topic#key``, made here of the two parts: ``hash(a + b) = hash(a) · 31^len(b) + hash(b)``.

Entries for an index file are prepared here too: everything that can be done before it is known which file they go to.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenq.broker.store.commitlog import BLANK_MAGIC
from evenq.model import java_string_hash
from evenq.protocol.flags import SysFlag
from evenq.protocol.records import MAGIC_V1
from evenq.protocol.windows import windows

__all__ = [
    "ENTRY_FIELDS",
    "LATEST_SECONDS",
    "Keys",
    "Links",
    "Prepared",
    "find_keys",
    "key_hash",
    "keys_of",
    "prepared",
]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Hashes = NDArray[np.uint32]

# an entry of an index file, and the largest time that fits into it
ENTRY_FIELDS = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("older", ">i4")])
LATEST_SECONDS = 2**31 - 1

_SIZE_AND_MAGIC = struct.Struct(">iI")
_NAME_END, _VALUE_END, _SPACE = 1, 2, 32
_SYS_FLAG_AT, _BORN_HOST_AT, _FIXED = 36, 48, 88


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of some records, in the order of the log: their hashes, and the place and time of their messages.

    ``end`` is where the records end that were looked at; ``blank`` whether the rest of the file is empty.
    """

    hashes: NDArray[np.int32]
    offsets: Ints
    times: Ints
    end: int
    blank: bool = False

    def __len__(self) -> int:
        return len(self.hashes)

    def part(self, begin: int, end: int) -> Keys:
        return Keys(self.hashes[begin:end], self.offsets[begin:end], self.times[begin:end], self.end)


def key_hash(topic: str, key: str) -> int:
    """What the index holds of one key.

    >>> key_hash("orders", "o-1"), key_hash("", "")
    (772470709, 35)
    """
    return _positive(java_string_hash(f"{topic}#{key}"))


def _positive(value: int) -> int:
    # the least of all numbers has no positive counterpart in Java
    return 0 if value == -(1 << 31) else abs(value)


def find_keys(data: bytes, base: int) -> Keys:
    """The keys of the whole records at the beginning of ``data``, which lies at ``base`` in the log."""
    starts, end, blank = _whole_records(data)
    if not len(starts):
        return Keys(np.empty(0, np.int32), starts, starts, base + end, blank)
    # a record that is cut off at the end must not pass for a part of the one before it
    return replace(keys_of(data[:end], starts, base), blank=blank)


def keys_of(data: bytes, starts: Ints, base: int) -> Keys:
    """The keys of the records that are ``data``, which lies at ``base`` in the log."""
    buffer = np.frombuffer(data, np.uint8)
    records = _Records(buffer, starts)
    rows, begins, ends = records.keys()
    topics, _ = _hashes(buffer, records.topic_at, records.topic_end)
    keys, units = _hashes(buffer, begins, ends)
    heads = topics[rows] * np.uint32(31) + np.uint32(ord("#"))
    signed = (heads * _powers(int(units.max(initial=0)))[units] + keys).view(np.int32)
    hashes = np.where(signed == -(1 << 31), 0, np.abs(signed)).astype(np.int32)
    return Keys(hashes, base + starts[rows], records.stored[rows], base + len(data))


def _whole_records(data: bytes) -> tuple[Ints, int, bool]:
    """Where the records begin, where the last whole one ends, and whether a marker for an empty rest follows it."""
    starts: list[int] = []
    at, last = 0, len(data) - _SIZE_AND_MAGIC.size
    blank = False
    while at <= last:
        size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
        if magic == BLANK_MAGIC:
            blank = True
            break
        if size <= 0 or at + size > len(data):
            break
        starts.append(at)
        at += size
    return np.array(starts, np.int64), at, blank


class _Records:
    """Where the parts of each record are."""

    def __init__(self, data: Bytes, starts: Ints) -> None:
        self._data = data
        sys_flag = _numbers(data, starts + _SYS_FLAG_AT, ">i4")
        stored_at = starts + _BORN_HOST_AT + np.where(sys_flag & SysFlag.BORN_HOST_V6, 20, 8)
        body_at = stored_at - _BORN_HOST_AT - 8 + _FIXED + np.where(sys_flag & SysFlag.STORE_HOST_V6, 12, 0)
        topic_size_at = body_at + _numbers(data, body_at - 4, ">i4")
        first = _numbers(data, starts + 4, ">u4") == MAGIC_V1
        self.topic_at = topic_size_at + np.where(first, 1, 2)
        size = np.where(first, data[topic_size_at], _numbers(data, topic_size_at, ">i2"))
        self.topic_end = self.topic_at + size
        self.stored = _numbers(data, stored_at, ">i8")
        self.properties_at = self.topic_end + 2
        self.end = starts + _numbers(data, starts, ">i4")
        self._starts = starts
        # messages that were rolled back cannot be found
        self._counts = (sys_flag & SysFlag.TRANSACTION) != SysFlag.ROLLBACK

    def keys(self) -> tuple[Ints, Ints, Ints]:
        """Each key, by record: which it belongs to, where it begins and ends. A record's unique key comes first."""
        marks = np.flatnonzero(self._data - _NAME_END <= _VALUE_END - _NAME_END)
        kinds = self._data[marks]
        names, ends = marks[kinds == _NAME_END], marks[kinds == _VALUE_END]
        unique = self._values(b"UNIQ_KEY", names, ends)
        several = _split(self._data, *self._values(b"KEYS", names, ends))
        if not len(several[0]):
            return unique
        rows, begins, stops = (np.concatenate(pair) for pair in zip(unique, several, strict=True))
        order = np.argsort(rows, kind="stable")
        return rows[order], begins[order], stops[order]

    def _values(self, name: bytes, name_ends: Ints, value_ends: Ints) -> tuple[Ints, Ints, Ints]:
        """The records that have a property, and where its value begins and ends."""
        begins = name_ends - len(name)
        begins = begins[
            (begins > 0) & (_every(self._data, f"u{len(name)}")[begins] == np.frombuffer(name, f"u{len(name)}"))
        ]
        if not len(begins):
            return begins, begins, begins
        rows = np.searchsorted(self._starts, begins, "right") - 1
        # the same bytes may stand in a body, or end a longer name
        real = (begins == self.properties_at[rows]) | (
            (begins > self.properties_at[rows]) & (self._data[begins - 1] == _VALUE_END)
        )
        real &= self._counts[rows]
        rows, values = rows[real], begins[real] + len(name) + 1
        next_mark = np.searchsorted(value_ends, values)
        stops = np.append(value_ends, len(self._data))[next_mark]
        return _last_of_each(rows, values, np.minimum(stops, self.end[rows]))


def _last_of_each(rows: Ints, begins: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Of a property that a record has twice the last one counts."""
    last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
    return rows[last], begins[last], ends[last]


def _split(data: Bytes, rows: Ints, begins: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut values at their blanks; what is empty is left out."""
    if not len(rows):
        return rows, begins, ends
    blanks = np.flatnonzero(data == _SPACE)
    place = np.searchsorted(begins, blanks, "right") - 1
    within = (place >= 0) & (blanks < ends[place])
    blanks, place = blanks[within], place[within]
    all_rows = np.concatenate((rows, rows[place]))
    all_begins = np.concatenate((begins, blanks + 1))
    all_ends = np.sort(np.concatenate((blanks, ends)))
    order = np.argsort(all_begins, kind="stable")
    all_rows, all_begins = all_rows[order], all_begins[order]
    filled = all_begins < all_ends
    return all_rows[filled], all_begins[filled], all_ends[filled]


def _hashes(data: Bytes, begins: Ints, ends: Ints) -> tuple[Hashes, Ints]:
    """Java's hash of each text, without its sign, and how many units it has in Java."""
    sizes = ends - begins
    found = np.zeros(len(begins), np.uint32)
    units = sizes.copy()
    for size in np.unique(sizes).tolist():
        if not size:
            continue
        those = np.flatnonzero(sizes == size)
        texts = _words(data, begins[those], size).view(np.uint8).reshape(-1, size)
        found[those] = texts.astype(np.uint32) @ _powers(size - 1)[::-1]
        # what is not ASCII has other units in Java than bytes
        for row in np.flatnonzero((texts & 0x80).any(axis=1)).tolist():
            text = texts[row].tobytes().decode(errors="replace")
            found[those[row]] = java_string_hash(text) & 0xFFFFFFFF
            units[those[row]] = len(text.encode("utf-16-le")) // 2
    return found, units


def _powers(most: int) -> Hashes:
    """31 to the power of 0, 1, … ``most``, as far as 32 bits hold them."""
    factors = np.full(most + 1, 31, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


def _every(data: Bytes, kind: str) -> NDArray[Any]:
    """What stands at each place of the data, as numbers or words of a kind."""
    dtype = np.dtype(kind)
    return windows(data, dtype.itemsize).view(dtype)


def _words(data: Bytes, begins: Ints, width: int) -> NDArray[np.void]:
    """The ``width`` bytes at each of the places."""
    words: NDArray[np.void] = windows(data, width)[begins]
    return words


def _numbers(data: Bytes, at: Ints, kind: str) -> Ints:
    return _every(data, kind)[at].astype(np.int64)


class Links(NamedTuple):
    """How entries, numbered from 0 on here, follow each other in their slots: ``older`` is the one before in the same
    slot, -1 for none. For each slot that one falls into, ``places``: the first such entry, and the last."""

    older: NDArray[np.int32]
    places: NDArray[np.int32]
    opens: NDArray[np.int64]
    closes: NDArray[np.int32]


class Prepared(NamedTuple):
    """Entries that lack nothing but their places in a file, with time and log offset of the first and the last one.

    ``end`` and ``blank`` are those of their keys.
    """

    entries: NDArray[np.void]
    links: Links
    first: tuple[int, int]
    last: tuple[int, int]
    end: int
    blank: bool


def prepared(keys: Keys, slots: int, base_time: int | None) -> Prepared:
    """Do for keys, of which there must be some, what can be done without the file. ``base_time`` is the file's; None
    for one that is empty.

    >>> keys = Keys(np.array([5, 13, 6]), np.array([100, 200, 300]), np.array([0, 1000, 2000]), end=400)
    >>> links = prepared(keys, 8, None).links
    >>> links.older.tolist(), links.places.tolist(), links.opens.tolist(), links.closes.tolist()
    ([-1, 0, -1], [5, 6], [0, 2], [1, 2])
    """
    times = keys.times
    base = int(times[0]) if base_time is None else base_time
    entries = np.zeros(len(keys), ENTRY_FIELDS)
    entries["hash"] = keys.hashes
    entries["offset"] = keys.offsets
    entries["seconds"] = np.clip((times - base) // 1000, 0, LATEST_SECONDS)
    first, last = ((int(times[at]), int(keys.offsets[at])) for at in (0, -1))
    return Prepared(entries, _linked(keys.hashes % slots), first, last, keys.end, keys.blank)


def _linked(places: NDArray[np.int32]) -> Links:
    # entries of one slot side by side, in order: each follows the one before it
    order = np.argsort(places, kind="stable")
    by_place = places[order]
    opens = np.append(True, by_place[1:] != by_place[:-1])
    before = np.append(-1, order[:-1]).astype(np.int32)
    before[opens] = -1
    older = np.empty_like(before)
    older[order] = before
    closes = np.append(opens[1:], True)
    return Links(older, by_place[opens].astype(np.int32), order[opens], order[closes].astype(np.int32))
