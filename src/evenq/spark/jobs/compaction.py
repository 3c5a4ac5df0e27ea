"""Merges the small files of a table into larger ones, without a moment in which rows are missing or there twice.

A stream writes some files with every micro-batch. What is merged is written to a new folder, together with links to the
files that stay; then the new folder and the old one trade their names, which the system does in one step. That step is
all there is to it: a crash before it changes nothing, one after it leaves an old folder for the next one to remove.
Readers list the one or the other. A reader that has listed the old folder and opens a merged file later gets an error
that the file is gone, and reads again.

Only local file systems can do that (on Linux and macOS). On others, tables that keep a list of their files (Delta,
Iceberg) have a compaction of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from evenq.errors import ArgumentError, StateError
from evenq.spark.jobs.files import exchange
from evenq.spark.jobs.publishing import Place, data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MERGEABLE", "TARGET", "Compacted", "check_compaction", "compact", "merges"]

# Files of about this size are good to read; what is smaller than half of it is merged.
TARGET = 128 * 2**20
# Formats whose files tell their own columns and types: what is read and written again is the same.
MERGEABLE = ("parquet", "orc")


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many files were merged, and into how many."""

    merged: int = 0
    made: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(self.merged + other.merged, self.made + other.made)


@dataclass(slots=True)
class _Bin:
    names: list[str] = field(default_factory=list)
    size: int = 0


def merges(sizes: Mapping[str, int], target: int = TARGET) -> list[list[str]]:
    """Which files to merge with which: the small ones, as they come, up to the target.

    >>> merges({"a": 10, "b": 20, "c": 90, "d": 30, "e": 5, "f": 20}, target=60)
    [['a', 'b', 'e', 'f']]
    """
    bins: list[_Bin] = []
    for name, size in sorted(sizes.items()):
        if size * 2 >= target and size > 1:
            continue
        if not bins or bins[-1].size + size > target:
            bins.append(_Bin())
        bins[-1].names.append(name)
        bins[-1].size += size
    return [each.names for each in bins if len(each.names) > 1]


def check_compaction(place: Place, form: str) -> None:
    if form not in MERGEABLE:
        raise ArgumentError("compact", form, f"files of this format cannot be merged, only {' and '.join(MERGEABLE)}")
    if not place.files.local:
        raise ArgumentError(
            "compact", place.root, "merging needs a local file system; elsewhere use a format like delta or iceberg"
        )


def compact(
    spark: SparkSession, place: Place, form: str, writing: Mapping[str, str] | None = None, target: int = TARGET
) -> Compacted:
    """Merge the small files of a table, folder by folder. Other writers of the table may go on meanwhile."""
    check_compaction(place, form)
    total = Compacted()
    # one compaction at a time: what an earlier one left can then be removed
    with place.files.locked(place.own("compaction.lock")):
        place.files.remove(place.own("compaction"))
        for folder, sizes in _folders(place):
            groups = merges(sizes, target)
            if groups:
                total += _compact_folder(spark, place, form, dict(writing or {}), folder, groups)
    return total


def _folders(place: Place) -> Iterator[tuple[str, dict[str, int]]]:
    """The folders that have files, and these with their sizes."""
    found: dict[str, dict[str, int]] = {}
    for path, size in data_files(place.files.walk(place.root)).items():
        folder, _, name = path.rpartition("/")
        found.setdefault(folder, {})[name] = size
    yield from found.items()


def _compact_folder(
    spark: SparkSession,
    place: Place,
    form: str,
    writing: Mapping[str, str],
    folder: str,
    groups: Sequence[Sequence[str]],
) -> Compacted:
    live = Path(place.root, folder)
    work = Path(place.own("compaction", uuid4().hex))
    try:
        made = [_merge(spark, form, writing, live, group, work / str(n)) for n, group in enumerate(groups)]
        gone = {name for group in groups for name in group}
        with place.files.locked(place.own("lock")):
            new = work / "folder"
            _lay_out(live, new, gone, made)
            _trade(new, live)
        return Compacted(len(gone), len(made))
    finally:
        # after the trade this is what was there before
        place.files.remove(str(work))


def _merge(
    spark: SparkSession, form: str, writing: Mapping[str, str], live: Path, group: Sequence[str], into: Path
) -> Path:
    """Write one file with the rows of several, and see that they are all there."""
    paths = [str(live / name) for name in group]
    rows = spark.read.format(form).option("mergeSchema", "true").load(paths)
    rows.coalesce(1).write.format(form).options(**writing).save(str(into))
    (made,) = [path for path in into.iterdir() if path.suffix and not path.name.startswith(("_", "."))]
    before, after = rows.count(), spark.read.format(form).load(str(made)).count()
    if before != after:
        raise StateError(f"{live}: merging {len(group)} files gave {after} rows of {before}; nothing was changed")
    return made


def _lay_out(live: Path, new: Path, gone: set[str], made: Sequence[Path]) -> None:
    """The new folder: what stays, by links, and what was merged, safely on the disk."""
    new.mkdir(parents=True)
    for path in live.iterdir():
        if path.is_dir():
            raise StateError(f"{path} is a folder where only files are: this is no table that ingest wrote")
        if path.name in gone:
            gone = gone - {path.name}
        else:
            os.link(path, new / path.name)
    if gone:
        raise StateError(f"{live}: {min(gone)} has gone meanwhile; is there another compaction?")
    for path in made:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.rename(new / f"merged-{uuid4().hex[:16]}{''.join(path.suffixes)}")


def _trade(new: Path, live: Path) -> None:
    try:
        exchange(new, live)
    except OSError as error:
        raise StateError(
            f"{live}: this file system cannot exchange two folders ({error.strerror}), so nothing was merged"
        ) from error
