"""Puts what a micro-batch wrote into a table of files, exactly once whatever happens in between.

Why not Spark's own file sink? It keeps a list of all files that count, ``_spark_metadata``. Files that are merged would
have to be changed in that list, which is Spark's alone; only Spark reads it, so everybody else also sees what a failed
task left; and it grows with the table. Here a table is just its files, and a file counts when it is in its place:

1. Spark writes the batch to a folder that no reader looks at (``_evenq/…``). After a crash it is written anew.
2. A journal of the batch is written, in one step: which file goes where. From here on, the batch counts.
3. The files are moved to their places, one step each. A crash in between leaves some for later: when Spark runs the
   batch again, as it does with one that it has not noted as done, the journal is found and the rest is moved.

So Spark's checkpoint says which batches are to be done, the journal that a batch is done, and what happens to files
afterwards (compaction) is nobody else's business. Batches are told apart by the query's id and their number. The
query's id lives in its checkpoint: with a new checkpoint the numbers begin again, and nothing is mistaken for done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evenq.spark.jobs.files import Files, join

__all__ = ["OWN", "Batch", "Place", "data_files", "publish"]

# The folder in a table that is ours. Readers leave out what begins with an underscore.
OWN = "_evenq"


@dataclass(frozen=True, slots=True)
class Place:
    """A table of files."""

    files: Files
    root: str

    def own(self, *parts: str) -> str:
        return join(self.root, OWN, *parts)


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of a micro-batch."""

    rows: int
    bad: int
    # from where to where, in full
    moves: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Batch:
        found: dict[str, Any] = json.loads(text)
        return cls(found["rows"], found["bad"], tuple((source, target) for source, target in found["moves"]))


def data_files(walked: Mapping[str, int]) -> dict[str, int]:
    """What readers of a table see: no file whose name, or a folder of whose, is hidden; nothing empty.

    >>> data_files({"date=2026-01-01/a.parquet": 9, "_SUCCESS": 0, "date=2026-01-01/.a.crc": 8, "_evenq/x": 3})
    {'date=2026-01-01/a.parquet': 9}
    """
    return {
        name: size
        for name, size in sorted(walked.items())
        if size and not any(part.startswith(("_", ".")) for part in name.split("/"))
    }


def publish(
    places: Mapping[str, Place], query: str, number: int, write: Callable[[Mapping[str, str]], tuple[int, int]]
) -> Batch:
    """Let ``write`` fill a folder for each place, and put the files where they belong; once, if called again.

    ``write`` gets the folders by the names of the places and gives the number of rows and of bad ones. The journal is
    kept by the first place.
    """
    first = next(iter(places.values()))
    journal = first.own(query, "journal", f"{number}.json")
    noted = first.files.read(journal)
    if noted is None:
        staging = {name: place.own(query, "staging", str(number)) for name, place in places.items()}
        for name, folder in staging.items():
            places[name].files.remove(folder)
        rows, bad = write(staging)
        moves = [move for name, folder in staging.items() for move in _moves(places[name], folder, query, number)]
        batch = Batch(rows, bad, tuple(moves))
        first.files.write(journal, batch.to_json())
    else:
        batch = Batch.from_json(noted)
    for place in places.values():
        _carry_out(place, batch.moves)
        place.files.remove(place.own(query, "staging"))
    _forget(first, query, number)
    return batch


def _moves(place: Place, folder: str, query: str, number: int) -> Iterable[tuple[str, str]]:
    for count, name in enumerate(data_files(place.files.walk(folder))):
        parts = name.split("/")
        ending = "".join(f".{part}" for part in parts[-1].split(".")[1:])
        yield join(folder, name), join(place.root, *parts[:-1], f"{query[:8]}-{number:08}-{count:04}{ending}")


def _carry_out(place: Place, moves: Iterable[tuple[str, str]]) -> None:
    with place.files.locked(place.own("lock")):
        for source, target in moves:
            # one that is not there any more was moved before, and is of no more concern
            if source.startswith(join(place.root, OWN)) and place.files.exists(source):
                place.files.move(source, target)


def _forget(place: Place, query: str, number: int) -> None:
    """Remove the journals of batches that Spark will not run again: all before the one that is under way."""
    folder = place.own(query, "journal")
    for name in place.files.walk(folder):
        stem = name.partition(".")[0]
        if stem.isdigit() and int(stem) < number:
            place.files.remove(join(folder, name))
