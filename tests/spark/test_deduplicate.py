"""Duplicates by their definition: an earlier message of the same queue has the same mark."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evenq.spark import deduplicate
from evenq.spark.deduplicate import Deduplicator
from evenq.spark.marks import Origin, epoch_of

Log = list[str | None]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """What a queue holds after two queries wrote some epochs, each batch with some broken tries before it."""
    written: dict[str, Log] = {}
    for query in ("q1", "q2"):
        rows = written[query] = []
        for epoch in range(draw(st.integers(0, 3))):
            marks = [
                Origin(query, epoch, draw(st.integers(0, 1))).mark(row, 7) for row in range(draw(st.integers(0, 6)))
            ]
            for _ in range(draw(st.integers(0, 2))):
                rows += draw(st.permutations(marks))[: draw(st.integers(0, len(marks)))]
            rows += marks
    written["others"] = [None] * draw(st.integers(0, 4))
    log: Log = []
    while any(written.values()):
        log.append(written[draw(st.sampled_from([name for name, rows in written.items() if rows]))].pop(0))
    return log


def read(log: Log, start: int, stop: int) -> list[int]:
    """The offsets of a range that are not duplicates."""

    def earlier(low: int, high: int) -> Sequence[str | None]:
        assert 0 <= low < high <= start
        return log[low:high]

    fresh = Deduplicator(start, earlier).fresh(log[start:stop])
    return [start + at for at, new in enumerate(fresh) if new]


@given(logs(), st.data())
def test_every_row_comes_once_however_the_queue_is_cut(log: Log, data: st.DataObject) -> None:
    cuts = sorted({0, len(log), *data.draw(st.lists(st.integers(0, len(log)), max_size=4))})
    kept = [offset for low, high in pairwise(cuts) for offset in read(log, low, high)]
    assert kept == [at for at, mark in enumerate(log) if mark is None or mark not in log[:at]]


def test_it_looks_back_no_further_than_the_epoch_before() -> None:
    asked: list[tuple[int, int]] = []
    log: Log = [Origin("q", at // 3000, 0).mark(at, 0) for at in range(12_000)]

    def earlier(low: int, high: int) -> Sequence[str | None]:
        asked.append((low, high))
        return log[low:high]

    assert all(Deduplicator(10_000, earlier).fresh(log[10_000:]))
    assert asked == [(9000, 10_000), (8000, 9000)]


def test_there_is_an_end_to_looking_back() -> None:
    start = 10 * deduplicate.LOOK_BACK
    asked: list[tuple[int, int]] = []

    def earlier(low: int, high: int) -> Sequence[str | None]:
        asked.append((low, high))
        return []

    assert Deduplicator(start, earlier).fresh(["q.0.0.0.0", "r.0.0.0.0"]) == [True, True]
    assert asked[-1][0] == start - deduplicate.LOOK_BACK
    assert [high for _, high in asked[1:]] == [low for low, _ in asked[:-1]], "nothing is read twice"


def test_rows_that_changed_places_are_kept() -> None:
    assert read(["q.0.0.0.a", "q.0.0.1.b", "q.0.0.0.b", "q.0.0.1.a"], 0, 4) == [0, 1, 2, 3]


def test_a_property_that_is_no_mark_harms_nobody() -> None:
    assert epoch_of("whatever.x") == ("", 0)
    assert read(["what", "what"], 0, 2) == [0]
