"""The folder of an audit: what it has read so far, batch by batch, and what it found.

::

    report.html, audit.json      what was found
    tables/*.parquet             the same as tables
    state/audit.json             what is audited
    state/topics/, state/trace/  for each stream:  checkpoint/  facts/BATCH/  ranges/BATCH.json

A micro-batch is there when its ranges are, which are written after its facts. One that is run again writes the same
files again. Small batches are put together now and then: the facts of batches 3 to 70 are then in ``3-70``, and a name
that lies within another does not count any more, so nothing is there twice even after a crash in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.jobs.audit.facts import places
from evenq.spark.jobs.audit.gaps import Span, joined
from evenq.spark.jobs.audit.rawfacts import write_facts
from evenq.spark.jobs.checkpoint import progress_in
from evenq.spark.jobs.folder import Folder
from evenq.spark.offsets import by_topic
from evenq.spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORM", "Facts", "Folder", "current", "open_store"]

# The form of the facts: another one cannot be added to what is there.
FORM = 1
# So many single batches are put together.
MANY = 64
# Rows in a file of facts that were put together, about.
ROWS = 4_000_000


def current(names: Iterable[str]) -> list[str]:
    """The batches that count: those that lie within another one do not.

    >>> current(["0", "1", "0-1", "2", "10"])
    ['0-1', '2', '10']
    """
    found: list[tuple[int, int, str]] = []
    for first, last, name in sorted(((*_numbers(name), name) for name in names), key=lambda part: (part[0], -part[1])):
        if not found or last > found[-1][1]:
            found.append((first, last, name))
    return [name for _, _, name in found]


def _numbers(name: str) -> tuple[int, int]:
    first, _, last = name.partition("-")
    return int(first), int(last or first)


def open_store(folder: Folder, topics: Sequence[str]) -> None:
    """Take the folder for an audit of these topics. One that holds another audit is an error."""
    wanted = {"form": FORM, "topics": sorted(topics)}
    there = folder.read("state/audit.json")
    if there is None:
        folder.write("state/audit.json", json.dumps(wanted))
    elif json.loads(there) != wanted:
        has = ", ".join(json.loads(there).get("topics", ()))
        raise ArgumentError("out", folder.path, f"it holds an audit of {has}: give another folder, or delete this one")


@dataclass(frozen=True, slots=True)
class Facts:
    """What one stream has brought into the folder."""

    spark: SparkSession
    folder: Folder
    name: str

    @property
    def checkpoint(self) -> str:
        return self.folder.child(f"state/{self.name}/checkpoint")

    def batches(self) -> list[str]:
        names = self.folder.names(f"state/{self.name}/ranges")
        return current(name.removesuffix(".json") for name in names if name.endswith(".json") and name[0] != "_")

    def take(
        self, shape: Callable[[DataFrame], DataFrame], raw: ReadOptions | None, frame: DataFrame, number: int
    ) -> None:
        """Keep a micro-batch. The same number again takes the place of what was there. With ``raw``, workers write
        messages as facts by themselves."""
        if any(_numbers(name)[0] <= number <= _numbers(name)[1] for name in self.batches() if "-" in name):
            return
        planned = self._planned(number)
        folder = self.folder.local(f"state/{self.name}/facts/{number}") if raw is not None else None
        if raw is not None and folder is not None:
            self.folder.delete(f"state/{self.name}/facts/{number}")
            ranges = [QueueRange(queue, *span) for queue, spans in planned.items() for span in spans]
            write_facts(self.spark, raw, ranges, places(self.spark, planned), folder)
        else:
            self._write(shape(frame), str(number))
        self._done(str(number), planned)

    def frame(self) -> DataFrame | None:
        """All facts of batches that are done; None while there are none."""
        paths = [self._at(name) for name in self.batches()]
        return self.spark.read.parquet(*paths) if paths else None

    def ranges(self) -> dict[MessageQueue, list[Span]]:
        """What the batches were to read, by queue; a queue of which nothing was read yet has no spans."""
        found: dict[MessageQueue, list[Span]] = {}
        for name in self.batches():
            for queue, spans in _from_json(self.folder.read(self._ranges(name)) or "{}").items():
                found.setdefault(queue, []).extend(spans)
        return {queue: joined(spans) for queue, spans in found.items()}

    def put_together(self, many: int = MANY) -> bool:
        """Make one of the batches where they have become many. Not while the stream writes one that is among them."""
        names = self.batches()
        if len(names) < many:
            return False
        frame = self.frame()
        assert frame is not None
        ranges = self.ranges()
        whole = f"{_numbers(names[0])[0]}-{_numbers(names[-1])[1]}"
        rows = sum(stop - start for spans in ranges.values() for start, stop in spans)
        self._write(frame.coalesce(1 + rows // ROWS), whole)
        self._done(whole, ranges)
        for name in names:
            self.folder.delete(self._ranges(name))
            self.folder.delete(f"state/{self.name}/facts/{name}")
        return True

    def _write(self, frame: DataFrame, name: str) -> None:
        # lz4 takes the least time, and what is read once in a while need not be small
        frame.write.mode("overwrite").option("compression", "lz4").parquet(self._at(name))

    def _done(self, name: str, ranges: dict[MessageQueue, list[Span]]) -> None:
        # a batch that is run again has the same ones
        if self.folder.read(self._ranges(name)) is None:
            self.folder.write(self._ranges(name), json.dumps(by_topic(ranges)))

    def _planned(self, number: int) -> dict[MessageQueue, list[Span]]:
        """What Spark's checkpoint says that this batch reads."""
        text = self.folder.read(f"state/{self.name}/checkpoint/offsets/{number}")
        assert text is not None, f"batch {number} has no offsets"
        return {part.queue: [(part.start, part.stop)] for part in progress_in(text).ranges}

    def _at(self, name: str) -> str:
        return self.folder.child(f"state/{self.name}/facts/{name}")

    def _ranges(self, name: str) -> str:
        return f"state/{self.name}/ranges/{name}.json"


def _from_json(text: str) -> dict[MessageQueue, list[Span]]:
    nested: dict[str, Any] = json.loads(text)
    return {
        MessageQueue(topic, broker, int(number)): [(start, stop) for start, stop in spans]
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for number, spans in queues.items()
    }
