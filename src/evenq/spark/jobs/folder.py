"""A folder on whatever file system Spark writes to: this machine's, HDFS or an object store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenq.errors import ArgumentError
from evenq.spark.jobs.files import files_at, join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder"]


class Folder:
    """The small files of a job. One that is replaced is the one before or the new one to whoever looks, and whole."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._files, self._root = files_at(spark, path)

    def child(self, name: str) -> str:
        """The path of something in it."""
        return join(self.path, name)

    def local(self, name: str = "") -> Path | None:
        """Where that is on this machine; None if the folder is on another file system."""
        return Path(self._at(name)) if self._files.local else None

    def names(self, name: str = "") -> list[str]:
        """What is in the folder, or in a folder of it; nothing where that is not there."""
        return self._files.names(self._at(name))

    def read(self, name: str) -> str | None:
        """The text of a file, or None where there is no such file."""
        data = self._files.read(self._at(name))
        return None if data is None else data.decode()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file, whose folders are made. It comes as a whole or not at all; one that is there gives way."""
        self._files.write(self._at(name), content if isinstance(content, bytes) else content.encode())

    def claim(self, name: str, request: Mapping[str, Any], argument: str) -> None:
        """See that the folder is for this request, by a file of that name in it, or make an empty one so."""
        now, text = json.loads(json.dumps(request)), self.read(name)
        if text is None:
            if self.names():
                raise ArgumentError(argument, self.path, "there are other things in it: give a folder of its own")
            self.write(name, json.dumps(now, indent=2))
            return
        before = json.loads(text)
        for key in now:
            if before.get(key) != now[key]:
                raise ArgumentError(
                    argument,
                    self.path,
                    f"another job was begun there, with {key} {before.get(key)!r} and not {now[key]!r}: "
                    "give another folder, or delete it if that job is not to go on",
                )

    def delete(self, name: str = "") -> None:
        """Delete a file or a folder of it, or the whole."""
        self._files.remove(self._at(name))

    def _at(self, name: str) -> str:
        return join(self._root, name) if name else self._root
