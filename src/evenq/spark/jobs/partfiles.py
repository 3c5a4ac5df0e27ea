"""Parquet files that workers write by themselves: a file under way, and the tasks that write such files.

A file has its final name when it is whole. The name tells the task but not the attempt: a task that is run a second
time writes the same file again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from evenq.client.read.ranges import QueueRange
from evenq.errors import StateError
from evenq.spark.options import ReadOptions
from evenq.spark.planning import plan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["PartFile", "Task", "Written", "run_tasks"]

Task = tuple[int, tuple[QueueRange, ...]]
Written = dict[str, int]


def run_tasks(
    spark: SparkSession, options: ReadOptions, ranges: Sequence[QueueRange], work: Callable[[Task], Written]
) -> Written:
    """Share ranges out among Spark's workers; gives the files that they wrote, and the rows in each.

    Work gets the number of its task with what it is to read, and is sent to the workers as it is.
    """
    tasks = plan(ranges, at_least=options.min_partitions, largest=options.max_records_per_partition)
    written: Written = {}
    if tasks:
        for files in spark.sparkContext.parallelize(list(enumerate(tasks)), len(tasks)).map(work).collect():
            written |= files
    for path in written:
        if not Path(path).exists():
            raise StateError(f"a worker wrote {path}, and it is not there: give a folder that all machines share")
    return written


@dataclass
class PartFile:
    """A Parquet file under way, under a name that no reader takes for data.

    ``repeated`` are the columns with few values: in others, a dictionary is only in the way. ``group`` is how many rows
    are encoded together.
    """

    folder: Path
    name: str
    _: KW_ONLY
    codec: str
    group: int
    repeated: Sequence[str]
    statistics: bool | Sequence[str] = True
    rows: int = 0
    _waiting: list[Any] = field(default_factory=list)
    _writer: Any = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._draft = self.folder / f"_{self.name}-{uuid4().hex}"

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self.rows += len(batch)
        if sum(map(len, self._waiting)) >= self.group:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            repeated = [name for name in self.repeated if name in table.column_names]
            statistics = self.statistics if isinstance(self.statistics, bool) else list(self.statistics)
            self._writer = pq.ParquetWriter(
                self._draft, table.schema, compression=self.codec, use_dictionary=repeated, write_statistics=statistics
            )
        self._writer.write_table(table, row_group_size=self.group * 2)
        self._waiting = []

    def finish(self) -> Path | None:
        """Give it its name; None where it has no rows."""
        if self._waiting:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        return self._draft.rename(self.folder / f"{self.name}.{self.codec}.parquet")

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._draft.unlink(missing_ok=True)
