"""The session of a job: the one that is there, or a clear word on what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenq.errors import ArgumentError, StateError
from evenq.spark.jobs.session import check_java, java_version, session, stderr_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("nonsense", None),
    ],
)
def test_versions_of_java(text: str, version: int | None) -> None:
    assert java_version(text) == version


@pytest.mark.live
def test_java_that_is_missing_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StateError, match=f"Java is missing in JAVA_HOME, {tmp_path}. Spark needs Java 17 or later"):
        check_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(StateError, match=r"is Java 11\. Spark needs Java 17 or later: install it"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StateError, match=r"Java is missing\. Spark needs"):
        check_java()


def test_pyspark_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenq.spark.jobs.session.find_spec", lambda name: None)
    with pytest.raises(StateError, match=r'pip install "evenq\[spark\]"'):
        session("test")


@pytest.mark.live
def test_jobs_load_no_pyspark_before_they_run() -> None:
    code = """
import pkgutil, importlib, sys, evenq.spark.jobs as jobs
for module in pkgutil.walk_packages(jobs.__path__, "evenq.spark.jobs."):
    importlib.import_module(module.name)
sys.exit("pyspark" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=180).returncode == 0


@pytest.mark.live
def test_errors_of_what_is_started_meanwhile_go_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_to(tmp_path / "log"):
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('noise')"], check=True)
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('word')"], check=True)
    assert (tmp_path / "log").read_text() == "noise"
    assert capfd.readouterr().err == "word"


def test_a_session_that_is_there_is_used_and_can_be_set_but_not_moved(spark: SparkSession) -> None:
    name = "spark.sql.files.maxRecordsPerFile"
    before = spark.conf.get(name)
    try:
        assert session("test", "local[2]", {name: "77"}) is spark
        assert spark.conf.get(name) == "77"
    finally:
        spark.conf.set(name, str(before))
    with pytest.raises(ArgumentError, match=r"Spark runs already, on local\[2\]"):
        session("test", "spark://elsewhere:7077")
    with pytest.raises(ArgumentError, match=r"spark\.driver\.memory='9g': Spark runs already and cannot change this"):
        session("test", settings={"spark.driver.memory": "9g"})


@pytest.mark.live
def test_local_spark_starts_by_itself_and_is_silent() -> None:
    code = """
import os, tempfile
from evenq.spark.jobs.session import session
spark = session("test", "local[1]", {"spark.driver.memory": "512m"})
assert spark.sparkContext.master == "local[1]"
assert spark.range(3).count() == 3
spark.stop()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
