"""The Spark session of a job: the one that is there, or one of its own.

Under ``spark-submit`` and in notebooks the session, its master and its memory are somebody else's choice. Where there
is none, a job starts local Spark with this very Python for its workers, so that evenq is there, and keeps the screen
clean: what the JVM and the workers write to standard error goes to a file, which is kept if the job fails.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from evenq.errors import ArgumentError, StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_java", "java_version", "keep_log", "session", "stderr_to"]

OLDEST_JAVA = 17

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}

# the log of the JVM that this process started, and whether it is to stay
_log: Path | None = None


def session(name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The active session if there is one, else a new one, on ``local[*]`` unless ``master`` or spark-submit says more.

    ``settings`` are Spark's own (``spark.sql.shuffle.partitions``). Those that a session can change while it runs are
    set on a session that is there; others are refused with a word on where to give them.
    """
    if find_spec("pyspark") is None:
        raise StateError('PySpark is missing, which does the work here: pip install "evenq[spark]"')
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    given = dict(settings or {})
    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        running = SparkSession.builder.getOrCreate()
    if running is not None:
        _adapt(running, master, given)
        return running
    builder = SparkSession.builder.appName(name).config(map={**given})
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started the JVM and knows the rest
        return (builder if master is None else builder.master(master)).getOrCreate()
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = builder.master(master or given.get("spark.master", "local[*]")).config(map={**_SETTINGS, **given})
    # what it logs of a call that Ctrl-C cut off is of no use to anybody
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with stderr_to(_new_log()):
        return builder.getOrCreate()


def _adapt(running: SparkSession, master: str | None, settings: Mapping[str, str]) -> None:
    own = running.conf.get("spark.master", None)
    if master is not None and master != own:
        raise ArgumentError("master", master, f"Spark runs already, on {own}: leave it out, or stop that session first")
    for key, value in settings.items():
        if running.conf.get(key, None) == value:
            continue
        if not running.conf.isModifiable(key):
            raise ArgumentError(key, value, "Spark runs already and cannot change this: give it where Spark is started")
        running.conf.set(key, value)


# Java


def java_version(text: str) -> int | None:
    """The major version in what ``java -version`` prints.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def check_java() -> None:
    """Raise an error that says what to install, where Spark would fail without a word that helps."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    way_out = f"Spark needs Java {OLDEST_JAVA} or later: install it, or set JAVA_HOME to where it is"
    if java is None or not Path(java).exists():
        raise StateError(f"Java is missing{f' in JAVA_HOME, {home}' if home else ''}. {way_out}")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(done.stderr + done.stdout)
    if version is not None and version < OLDEST_JAVA:
        raise StateError(f"{java} is Java {version}. {way_out}")


# What the JVM writes


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Let what is started meanwhile (the JVM, for good) write its errors to a file instead of across the screen."""
    sys.stderr.flush()
    own = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _new_log() -> Path:
    global _log
    number, name = tempfile.mkstemp(prefix="evenq-spark-", suffix=".log")
    os.close(number)
    if _log is None:
        atexit.register(_remove_log)
    _log = Path(name)
    return _log


def keep_log() -> Path | None:
    """Where Spark's log is, if this process started Spark; it is then kept when the process ends."""
    global _log
    kept, _log = _log, None
    return kept


def _remove_log() -> None:
    if _log is not None:
        with suppress(OSError):
            _log.unlink()
