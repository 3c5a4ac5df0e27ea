"""Files by Python and by Hadoop do the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from evenq.spark.jobs.files import Files, HadoopFiles, LocalFiles, files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def hadoop(spark: SparkSession) -> HadoopFiles:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path("file:///tmp")
    return HadoopFiles(jvm, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()))


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_all_that_is_done_with_files(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    files: Files = LocalFiles() if kind == "local" else hadoop(spark)
    root = f"{tmp_path}/a b%20c"
    assert files.walk(root) == {}
    assert files.read(f"{root}/x") is None
    files.write(f"{root}/x", b"\x00one")
    files.write(f"{root}/x", b"\xfftwo")
    assert files.read(f"{root}/x") == b"\xfftwo"
    assert (files.names(root), files.names(f"{root}/nothing")) == (["x"], [])
    files.move(f"{root}/x", f"{root}/date=2026-01-01/topic=a%2Fb/y")
    assert files.walk(root) == {"date=2026-01-01/topic=a%2Fb/y": 4}
    assert files.exists(f"{root}/date=2026-01-01")
    assert not files.exists(f"{root}/x")
    with files.locked(f"{root}/lock"):
        files.remove(f"{root}/date=2026-01-01")
    files.remove(f"{root}/nothing")
    assert not files.exists(f"{root}/date=2026-01-01")
    with pytest.raises((FileNotFoundError, Py4JJavaError)):
        files.move(f"{root}/nothing", f"{root}/z")


def test_a_path_tells_its_file_system(spark: SparkSession, tmp_path: Path) -> None:
    for given in (f"{tmp_path}/a b", f"file://{tmp_path}/a b"):
        files, path = files_at(spark, given)
        assert isinstance(files, LocalFiles)
        assert path == f"{tmp_path}/a b"
