"""Spark programs that start quickly: options for their JVMs, and what ``make test`` prepares once in ``.venv``.

- The JVM of a short program spends half of its processor time on loading classes. One such program is run, and its JVM
  writes the classes to an archive. Without the archive, or with one of other jars or of another Java, a JVM loads its
  classes as usual.
- Spark starts a dozen Python processes for a program, and each compiles the modules in ``pyspark.zip``, which takes it
  half a second. The compiled modules are added to the zip.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from tests.realmq.jvm import QUICK

__all__ = ["ARCHIVE", "OPTIONS", "archive_classes", "compile_pyspark"]

_ROOT = Path(__file__).parents[2]
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# The last one keeps a JVM from telling, on standard output, that an archive does not fit it.
OPTIONS = " ".join([*QUICK, f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:disable"])

# What a test's Spark program does: write to a topic, read it, stream it to files. The JVM ends with its standard input.
_PROGRAM = """
import sys
from pyspark.sql import SparkSession
from evenq.testing import cluster
from tests.spark.roundtrip import main

with cluster(brokers=1) as running:
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    process = SparkSession.getActiveSession().sparkContext._gateway.proc
    main(running.namesrv, "classes", sys.argv[1])
process.stdin.close()
process.wait()
"""


def compile_pyspark() -> None:
    """Add compiled modules to the ``pyspark.zip`` that Spark gives its Python processes."""
    import pyspark

    target = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    with ZipFile(target) as given:
        if any(name.endswith(".pyc") for name in given.namelist()):
            return
        beside = target.with_suffix(".new")
        with ZipFile(beside, "w") as made:
            for info in given.infolist():
                source = given.read(info)
                made.writestr(info, source)
                if info.filename.endswith(".py") and "/tests/" not in info.filename:
                    made.writestr(ZipInfo(f"{info.filename}c", info.date_time), _compiled(source, info))
    # replaced, not changed: the file may be a link into uv's cache
    beside.replace(target)


def _compiled(source: bytes, info: ZipInfo) -> bytes:
    """A module's code as zipimport takes it: it compares time and size with those of the source in the zip."""
    written = int(time.mktime((*info.date_time, -1, -1, -1)))
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, written, len(source))
    return head + marshal.dumps(compile(source, info.filename, "exec", dont_inherit=True))


def archive_classes() -> None:
    """Make the archive if there is none, which takes half a minute."""
    if ARCHIVE.exists():
        return
    with tempfile.TemporaryDirectory(prefix="evenq-classes-", dir=sys.prefix) as folder:
        made = Path(folder) / ARCHIVE.name
        options = [*QUICK, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"]
        own = {"SPARK_SUBMIT_OPTS": " ".join(options), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_ROOT)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-c", _PROGRAM, folder],
                env={**os.environ, **own},
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=300,
            )
        if made.exists():
            made.rename(ARCHIVE)


if __name__ == "__main__":
    compile_pyspark()
    archive_classes()
    print(
        f"Spark's classes: {ARCHIVE}" if ARCHIVE.exists() else "Spark's classes could not be archived: tests are slower"
    )
