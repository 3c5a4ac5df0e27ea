import zlib
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.spark.checksums import checksums

# around the sizes of words, and where long rows begin
values = st.one_of(
    st.binary(max_size=20),
    st.integers(505, 520).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    st.binary(min_size=1, max_size=3).map(lambda piece: piece * 700),
)


def of(*rows: bytes) -> list[int]:
    found: list[int] = checksums([pa.array(rows, pa.binary())]).tolist()
    return found


@given(st.lists(values, max_size=8), st.integers(0, 8))
def test_a_checksum_depends_on_nothing_but_the_row(rows: list[bytes], cut: int) -> None:
    alone = [of(row)[0] for row in rows]
    assert of(*rows) == alone
    assert of(*rows[:cut]) + of(*rows[cut:]) == alone
    column = pa.array([b"before", *rows, b"behind"]).slice(1, len(rows))
    assert checksums([column]).tolist() == alone


def mixed(number: int) -> int:
    """SplitMix64, made odd."""
    number = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31 | 1


@given(values)
def test_checksums_are_the_same_for_ever(row: bytes) -> None:
    words = [int.from_bytes(row[at : at + 4], "little") for at in range(0, len(row), 4)]
    sums = sum(word * mixed(place) for place, word in enumerate([len(row), *words]))
    assert of(row) == [sums % 2**64 >> 32 if len(row) <= 512 else zlib.crc32(row)]


@given(st.lists(st.tuples(values, values), unique=True, min_size=2, max_size=8))
def test_all_columns_count(rows: list[tuple[bytes, bytes]]) -> None:
    ones, others = zip(*rows, strict=True)
    found = checksums([pa.array(ones), pa.array(others)]).tolist()
    assert len(set(found)) == len(rows)
    moved = checksums([pa.array(others), pa.array(ones)]).tolist()
    assert [a == b for a, b in zip(found, moved, strict=True)] == [one == other for one, other in rows]


ALIKE = {
    "numbers": [b"%d" % n for n in range(100_000)],
    "filled up": [b"%100d" % n for n in range(100_000)],
    "documents": [b'{"id": %d, "of": %d, "ok": true}' % (n // 7, n) for n in range(100_000)],
    "one byte": list(chain.from_iterable((bytes(n), bytes(n) + b"\x01", b"\x01" + bytes(n)) for n in range(500)))[1:],
    "one bit": [bytes(at) + bytes([1 << bit]) + bytes(99 - at) for at in range(100) for bit in range(8)],
    "two bits": [(1 << low | 1 << high).to_bytes(40, "big") for high in range(320) for low in range(high)],
    "turned": [bytes(np.roll(np.frombuffer(b"balance the load, evenly", np.uint8), n)) for n in range(24)],
}


@pytest.mark.parametrize("kind", ALIKE)
def test_rows_that_are_much_alike_are_told_apart(kind: str) -> None:
    rows = list(dict.fromkeys(ALIKE[kind]))
    shared = len(rows) - len(set(of(*rows)))
    by_chance = len(rows) ** 2 / 2**33
    assert shared <= 5 + 5 * by_chance
