"""The few things that jobs do with files by themselves, on whatever file system Spark writes to.

A path is taken as Spark takes it: without a scheme it is on Spark's default file system. Local ones are handled by
Python, others through Hadoop's classes in Spark's JVM.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from evenq.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Files", "HadoopFiles", "LocalFiles", "exchange", "files_at", "join"]


class Files(Protocol):
    """A file system. Names below a folder are relative, with slashes."""

    local: bool

    def walk(self, folder: str) -> dict[str, int]:
        """All files below a folder with their sizes; none where there is no such folder."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder, in order; nothing where there is no such folder."""

    def exists(self, path: str) -> bool: ...

    def move(self, source: str, target: str) -> None:
        """Give a file another name, all at once; folders that are missing are made."""

    def remove(self, path: str) -> None:
        """A file or a folder with all that is in it; nothing where there is none."""

    def read(self, path: str) -> bytes | None: ...

    def write(self, path: str, data: bytes) -> None:
        """A small file: it is there with all its content, or not at all."""

    def locked(self, path: str) -> AbstractContextManager[None]:
        """Nobody else holds this lock meanwhile, where the file system has such a thing."""


def join(*parts: str) -> str:
    """
    >>> join("hdfs://host/data/", "_evenq", "checkpoint")
    'hdfs://host/data/_evenq/checkpoint'
    """
    return "/".join([*(part.rstrip("/") for part in parts[:-1]), parts[-1]])


def files_at(spark: SparkSession, path: str) -> tuple[Files, str]:
    """The file system of a path, and the path in full."""
    jvm: Any = spark.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop.fs.Path(path)
    system = hadoop.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    full = str(system.makeQualified(hadoop))
    if system.getScheme() == "file":
        return LocalFiles(), full.removeprefix("file:")
    return HadoopFiles(jvm, system), full


class LocalFiles:
    """This machine's files."""

    local = True

    def walk(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        # what is moved or removed meanwhile is passed over
        for place, _, names in os.walk(folder):
            for path in (Path(place, name) for name in names):
                with suppress(FileNotFoundError):
                    found[str(path.relative_to(folder))] = path.stat().st_size
        return found

    def names(self, folder: str) -> list[str]:
        # Hadoop keeps a check sum of a local file beside it, and does not show that either
        root = Path(folder)
        found = (path.name for path in root.iterdir()) if root.is_dir() else ()
        return sorted(name for name in found if not (name.startswith(".") and name.endswith(".crc")))

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def move(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(target)

    def remove(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        new = Path(f"{path}.new")
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class HadoopFiles:
    """Files of HDFS, of object stores and others that Spark has classes for."""

    local = False

    def __init__(self, jvm: Any, system: Any) -> None:
        self._jvm = jvm
        self._system = system

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def walk(self, folder: str) -> dict[str, int]:
        if not self.exists(folder):
            return {}
        root = urlsplit(str(self._path(folder).toUri())).path.rstrip("/") + "/"
        found, listing = {}, self._system.listFiles(self._path(folder), True)
        while listing.hasNext():
            status = listing.next()
            path = urlsplit(str(status.getPath().toUri())).path
            found[unquote(path).removeprefix(unquote(root))] = int(status.getLen())
        return found

    def names(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path(folder)))

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def move(self, source: str, target: str) -> None:
        self._system.mkdirs(self._path(target).getParent())
        if not self._system.rename(self._path(source), self._path(target)):
            raise StateError(f"{source} could not be moved to {target}: see whether both may be written")

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def read(self, path: str) -> bytes | None:
        if not self.exists(path):
            return None
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        new = f"{path}.new"
        stream = self._system.create(self._path(new), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self.remove(path)
        self.move(new, path)

    def locked(self, path: str) -> AbstractContextManager[None]:
        return nullcontext()


def exchange(one: Path, other: Path) -> None:
    """Let two folders trade their names in one step: whoever looks sees the one or the other, never none or both."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = libc.renamex_np(*names, 2)
    else:
        here = -100  # paths are taken as they are
        failed = libc.renameat2(here, names[0], here, names[1], 2)
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))
