"""Spark in processes of its own: where it is installed, and an environment in which only a test has a say."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.spark_jvm import OPTIONS

__all__ = ["SPARK", "environment", "one_connect_server"]

pyspark = pytest.importorskip("pyspark", reason="PySpark is missing: install evenq[spark]")

SPARK = Path(pyspark.__file__).parent


def environment(folder: Path, **more: str) -> dict[str, str]:
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(SPARK)}
    paths = [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    places = {"SPARK_LOCAL_DIRS": str(folder), "SPARK_LOG_DIR": str(folder), "SPARK_WORKER_DIR": str(folder)}
    places["JAVA_TOOL_OPTIONS"] = OPTIONS
    return {**kept, **own, **places, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


@contextmanager
def one_connect_server() -> Iterator[None]:
    """Within the block, no other test runs a server of Spark Connect: it has one port on a machine."""
    with (Path(tempfile.gettempdir()) / "evenq-spark-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
