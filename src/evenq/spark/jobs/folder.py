"""A folder on whatever file system Spark writes to: this machine's, HDFS or an object store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evenq.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder"]


class Folder:
    """The few things a job does with small files, by Hadoop's own means: what Spark can write to, this can."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._jvm: Any = spark._jvm
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._files: Any = self._at().getFileSystem(self._configuration)

    def child(self, name: str) -> str:
        """The path of something in it."""
        return f"{self.path.rstrip('/')}/{name}"

    def names(self, name: str = "") -> list[str]:
        """What is in the folder, or in a folder of it; nothing where that is not there."""
        at = self._at(name)
        if not self._files.exists(at):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(at))

    def read(self, name: str) -> str | None:
        """The text of a file, or None where there is no such file."""
        at = self._at(name)
        if not self._files.exists(at):
            return None
        stream = self._files.open(at)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file. It comes as a whole or not at all; one that is there gives way."""
        draft, at = self._at(f"_{name.replace('/', '-')}.draft"), self._at(name)
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.mkdirs(at.getParent())
        if not self._files.rename(draft, at):
            # some file systems do not write over what is there
            self._files.delete(at, False)
            self._files.rename(draft, at)

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
        self._files.delete(self._at(name), True)

    def _at(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.child(name) if name else self.path)
