"""A read gives what was asked for, as much as fits, in order; whichever way it was chosen."""

from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.consumequeue import UNIT
from evenq.broker.store.selection import Selection, select

# the gap in front of each message in the log, its size, and the hash of its tag
messages = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 50]), st.integers(91, 130), st.integers(0, 2)), min_size=1, max_size=100
) | st.integers(1, 100).map(lambda count: [(0, 100, 0)] * count)


def units_of(found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    units = []
    position = 1000
    for gap, size, code in found:
        position += gap
        units.append((position, size, code))
        position += size
    return units


def covered(selection: Selection) -> list[int]:
    return [at for position, size in selection.pieces for at in range(position, position + size)]


@given(messages, st.integers(1, 110), st.integers(1, 12_000), st.none() | st.frozensets(st.integers(0, 2)))
def test_as_many_as_asked_for_and_as_fit(
    found: list[tuple[int, int, int]], count: int, max_bytes: int, codes: frozenset[int] | None
) -> None:
    units = units_of(found)
    selection = select(b"".join(UNIT.pack(*unit) for unit in units), count, max_bytes, codes)
    wanted = [unit for unit in units if codes is None or unit[2] in codes]
    chosen, left = wanted[: selection.found], wanted[selection.found :]
    assert covered(selection) == [at for position, size, _ in chosen for at in range(position, position + size)]
    assert selection.found <= count
    assert selection.found <= 1 or sum(size for _, size, _ in chosen) <= max_bytes
    if left:
        assert chosen
        assert selection.found == count or sum(size for _, size, _ in [*chosen, left[0]]) > max_bytes
        assert units.index(chosen[-1]) < selection.seen <= units.index(left[0])
    else:
        assert selection.seen == len(units)


def test_messages_side_by_side_are_one_piece() -> None:
    wire = b"".join(UNIT.pack(number * 100, 100, 0) for number in range(70))
    assert len(select(wire, 32, 1 << 20).pieces) == 1
    assert len(select(wire, 70, 1 << 20).pieces) == 3
