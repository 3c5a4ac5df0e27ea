"""How far a streaming query on topics is, from its checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.spark.jobs.folder import Folder
from evenq.spark.offsets import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["progress_in", "reached"]


def progress_in(text: str) -> Progress:
    """What an entry of the folder ``offsets`` says: a version, a line about the query, and the offset of its source.

    >>> entry = 'v1\\n{}\\n{"t": {"b": {"0": {"from": 1, "to": 3}}}}'
    >>> progress_in(entry).reached
    {MessageQueue(topic='t', broker='b', queue_id=0): 3}
    """
    lines = text.splitlines()
    if len(lines) < 3:
        raise ProtocolError(f"the checkpoint has an entry that is not whole: {text!r}. Use an empty folder")
    return Progress.from_json(json.loads(lines[2]))


def reached(spark: SparkSession, path: str) -> dict[MessageQueue, int] | None:
    """The next offset of each queue after the last micro-batch that is done; None before there is one."""
    folder = Folder(spark, path)
    done = [int(name) for name in folder.names("commits") if name.isdigit()]
    text = folder.read(f"offsets/{max(done)}") if done else None
    return None if text is None else progress_in(text).reached
