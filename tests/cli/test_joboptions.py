"""What the commands on Spark share."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from evenq.cli.joboptions import print_summary, read_conf, read_source, spark_job
from evenq.errors import ArgumentError, RemoteError


@dataclass(frozen=True)
class Summary:
    rows: int
    bad_rows: int


def test_settings_are_pairs_of_spark() -> None:
    assert read_conf(None) == {}
    assert read_conf(["spark.a=1=2", "spark.b="]) == {"spark.a": "1=2", "spark.b": ""}
    with pytest.raises(ArgumentError, match=r"--conf='driver\.memory=2g': Spark's settings begin with spark"):
        read_conf(["driver.memory=2g"])
    with pytest.raises(ArgumentError, match="--conf='x': give NAME=VALUE"):
        read_conf(["x"])
    assert read_source(["tags=a || b"]) == {"tags": "a || b"}


def test_a_summary_is_for_people_or_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(Summary(1234, 5), as_json=False)
    assert capsys.readouterr().out == "rows      1,234\nbad rows  5\n"
    print_summary(Summary(1234, 5), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"rows": 1234, "bad_rows": 5}


def test_an_error_of_spark_is_one_sentence_and_others_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("pyspark.errors", reason="PySpark is missing: install evenq[spark]")
    monkeypatch.setattr("evenq.spark.jobs.session.session", lambda name, master, settings: None)
    with pytest.raises(RemoteError, match=r"^Spark: no such table$"), spark_job("test"):
        raise errors.AnalysisException("[TABLE_NOT_FOUND] no such table SQLSTATE: 42P01\n  at x")
    for error in (ArgumentError("a", 1, "give 2"), ValueError("a mistake in the code")):
        with pytest.raises(type(error), match="a"), spark_job("test"):
            raise error
