"""Rows that wait to be sent: read from their table once, numbered, and kept in rounds until all are sent.

A table may give other rows, or the same ones in another order, when it is read again; so what will be sent is written
down first, as Parquet in the job's folder. ::

    publish.json        what was asked for: a folder goes on only with the same
    rows/               the messages; each task of the write has a file for each round
    staged.json         the writer's name, and the files and rows of each round: from here on something may be sent
    sent/0, sent/1, …   the rounds that are sent

A round is sent as one epoch of the writer. One that was cut off is sent again, from the same files with the same marks.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from evenq.errors import StateError
from evenq.spark.jobs.folder import Folder
from evenq.spark.marks import QUERY_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Round", "Staged", "Staging", "rounds_of"]

_REQUEST, _STAGED, _ROWS, _SENT = "publish.json", "staged.json", "rows", "sent"

# The end of what Spark calls the files of a task that may have some rows each: part-00003-….c012.snappy.parquet
_NUMBER = re.compile(r"c(\d+)(?:\.\w+)*\.parquet$")

# More than any file has: a file is then a task, never two and never half a one, and its rows stay in their order.
_WHOLE_FILES = str(1 << 50)


@dataclass(frozen=True, slots=True)
class Round:
    """What is sent together: some rows of each task."""

    files: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Staged:
    """All that will be sent, and the name that its marks have."""

    writer: str
    rounds: tuple[Round, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.rounds)


def rounds_of(rows: Mapping[str, int]) -> tuple[Round, ...]:
    """The rounds that the files of a staged table make, from the rows of each file.

    >>> [each.rows for each in rounds_of({"p-0-c000.parquet": 5, "p-1-c000.parquet": 4, "p-0-c001.parquet": 1})]
    [9, 1]
    """
    found: dict[int, list[str]] = defaultdict(list)
    for name in sorted(rows):
        number = _NUMBER.search(name)
        if number is None:
            raise StateError(f"file {name} is not named as Spark names the files of a task: the folder is not evenq's")
        found[int(number[1])].append(name)
    return tuple(Round(tuple(found[at]), sum(rows[name] for name in found[at])) for at in sorted(found))


class Staging:
    """The folder of one job."""

    def __init__(self, spark: SparkSession, path: str, request: Mapping[str, Any]) -> None:
        from evenq.spark.source import RocketMQSource

        # a session of our own, since how files are divided among tasks is a setting of the session
        self.session = spark.newSession()
        # which does not look for sources by itself
        self.session.dataSource.register(RocketMQSource)
        for name in ("maxPartitionBytes", "openCostInBytes"):
            self.session.conf.set(f"spark.sql.files.{name}", _WHOLE_FILES)
        self._folder = Folder(spark, path)
        self._folder.claim(_REQUEST, request, "state")

    def staged(self) -> Staged | None:
        """What is here, if all of it is."""
        text = self._folder.read(_STAGED)
        if text is None:
            return None
        found = json.loads(text)
        return Staged(found["writer"], tuple(Round(tuple(each["files"]), each["rows"]) for each in found["rounds"]))

    def stage(self, frame: DataFrame, rows_per_file: int) -> None:
        """Write down the rows of a frame, task by task. What was half written before is written anew."""
        numbered = frame.selectExpr("*", "monotonically_increasing_id() as row_number")
        path = self._folder.child(_ROWS)
        numbered.write.mode("overwrite").option("maxRecordsPerFile", rows_per_file).parquet(path)

    def seal(self) -> Staged:
        """Count what was staged and give it a name: from here on it may be sent."""
        files = [name for name in self._folder.names(_ROWS) if name.endswith(".parquet")]
        counts: dict[str, int] = {}
        if files:
            read = self.session.read.parquet(self._folder.child(_ROWS))
            counts = {row["file"]: row["count"] for row in read.groupBy("_metadata.file_name").count().toDF(
                "file", "count").collect()}  # fmt: skip
        staged = Staged(uuid4().hex[:QUERY_DIGITS], rounds_of({name: counts[name] for name in files if name in counts}))
        self._folder.write(_STAGED, json.dumps(asdict(staged)))
        return staged

    def read(self, files: Sequence[str]) -> DataFrame:
        """The rows of some files, a task for each."""
        return self.session.read.parquet(*(self._folder.child(f"{_ROWS}/{name}") for name in files))

    def sent(self) -> set[int]:
        """The rounds that are sent."""
        return {int(name) for name in self._folder.names(_SENT) if name.isdigit()}

    def note_sent(self, number: int) -> None:
        self._folder.write(f"{_SENT}/{number}", "")

    def clear(self, names: Iterable[str] = (_ROWS, _SENT, _STAGED, _REQUEST)) -> None:
        """Delete all that is here. The request goes last: without it the rest would be in the way of the next job."""
        for name in names:
            self._folder.delete(name)
        if not self._folder.names():
            self._folder.delete()
