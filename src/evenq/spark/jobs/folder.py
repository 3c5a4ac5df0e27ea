"""A folder on whatever file system Spark writes to: this machine's, HDFS or an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        """Write a file anew. It is there as a whole or not at all."""
        draft, at = self._at(f"_{name.replace('/', '-')}.draft"), self._at(name)
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.mkdirs(at.getParent())
        self._files.delete(at, False)
        self._files.rename(draft, at)

    def delete(self, name: str = "") -> None:
        """Delete a file or a folder of it, or the whole."""
        self._files.delete(self._at(name), True)

    def _at(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.child(name) if name else self.path)
