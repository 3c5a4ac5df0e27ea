"""A batch is in its place exactly once, wherever the one who put it there died."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.spark.jobs.files import LocalFiles
from evenq.spark.jobs.publishing import Batch, Place, data_files, publish
from tests.harness.scale import examples

QUERY = "0123456789abcdef"


class Crash(BaseException):
    """The end of a process."""


class Dying(LocalFiles):
    """Files of a process that dies after some more steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def _step(self) -> None:
        if self.steps == 0:
            raise Crash
        self.steps -= 1

    def move(self, source: str, target: str) -> None:
        self._step()
        super().move(source, target)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

    def write(self, path: str, data: bytes) -> None:
        self._step()
        super().write(path, data)


def writer(contents: Mapping[str, Mapping[str, str]]) -> Callable[[Mapping[str, str]], tuple[int, int]]:
    """Writes given files, as Spark does: with names of its own each time, and things beside them."""
    runs = iter(range(1000))

    def write(folders: Mapping[str, str]) -> tuple[int, int]:
        run = next(runs)
        for place, files_of_place in contents.items():
            for name, text in files_of_place.items():
                path = Path(folders[place], name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_name(f"part-{path.name}-{run}.zstd.parquet").write_text(text)
                path.with_name(f".part-{path.name}-{run}.zstd.parquet.crc").write_text("checksum")
            if files_of_place:
                Path(folders[place], "_SUCCESS").touch()
        return sum(map(len, contents.values())), len(contents.get("bad", {}))

    return write


def contents(root: Path) -> list[str]:
    return sorted((root / name).read_text() for name in data_files(LocalFiles().walk(str(root))))


BATCHES: list[dict[str, dict[str, str]]] = [
    {"good": {"date=1/topic=a/0": "a", "date=1/topic=b/0": "b"}, "bad": {}},
    {"good": {"date=1/topic=a/0": "c", "date=1/topic=a/1": "d"}, "bad": {"date=1/topic=a/0": "e"}},
    {"good": {"date=2/topic=a/0": "f"}, "bad": {}},
]


@settings(max_examples=examples(200))
@given(deaths=st.lists(st.integers(0, 12), max_size=12))
def test_a_death_at_any_step_loses_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[int]
) -> None:
    root = tmp_path_factory.mktemp("table")
    good, bad = root / "table", root / "table-bad"
    left, committed = list(deaths), 0
    while committed < len(BATCHES):
        system = Dying(left.pop(0) if left else -1)
        places = {"good": Place(system, str(good)), "bad": Place(system, str(bad))}
        try:
            batch = publish(places, QUERY, committed, writer(BATCHES[committed]))
        except Crash:
            continue
        assert (batch.rows, batch.bad) == (sum(map(len, BATCHES[committed].values())), len(BATCHES[committed]["bad"]))
        committed += 1
    assert contents(good) == ["a", "b", "c", "d", "f"]
    assert contents(bad) == ["e"]
    own = LocalFiles().walk(str(good / "_evenq"))
    assert sorted(own) == [f"{QUERY}/journal/2.json", "lock"], "nothing else is left behind"


def test_a_batch_that_is_done_is_not_written_again(tmp_path: Path) -> None:
    places = {"good": Place(LocalFiles(), str(tmp_path))}
    first = publish(places, QUERY, 0, writer({"good": {"date=1/topic=a/0": "a"}}))
    # merged since
    for name in data_files(LocalFiles().walk(str(tmp_path))):
        (tmp_path / name).rename(tmp_path / "date=1" / "merged.parquet")

    def never(folders: Mapping[str, str]) -> tuple[int, int]:
        raise AssertionError("written twice")

    assert publish(places, QUERY, 0, never) == first
    assert contents(tmp_path) == ["a"]


def test_another_query_is_another_batch(tmp_path: Path) -> None:
    places = {"good": Place(LocalFiles(), str(tmp_path))}
    for query, text in (("a" * 16, "a"), ("b" * 16, "b")):
        publish(places, query, 0, writer({"good": {"date=1/topic=a/0": text}}))
    assert contents(tmp_path) == ["a", "b"]


def test_a_journal_is_read_as_it_was_written() -> None:
    batch = Batch(3, 1, (("from", "to"), ("x", "y")))
    assert Batch.from_json(batch.to_json()) == batch
