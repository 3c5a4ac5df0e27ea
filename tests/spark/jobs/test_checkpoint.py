"""How far a query is, from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenq.errors import ProtocolError
from evenq.model import MessageQueue
from evenq.spark.jobs.checkpoint import progress_in, reached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRY = 'v1\n{"batchWatermarkMs":0}\n{"t": {"b": {"0": {"from": %d, "to": %d}}}}'


def test_an_entry_that_is_not_whole_is_no_progress() -> None:
    assert progress_in(ENTRY % (3, 9)).reached == {MessageQueue("t", "b", 0): 9}
    with pytest.raises(ProtocolError, match="not whole"):
        progress_in("v1\n{}")


def test_only_what_is_committed_counts(spark: SparkSession, tmp_path: Path) -> None:
    assert reached(spark, str(tmp_path / "none")) is None
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for number in (9, 10, 11):
        (tmp_path / "offsets" / str(number)).write_text(ENTRY % (number, number + 1))
    (tmp_path / "commits" / ".9.crc").touch()
    assert reached(spark, str(tmp_path)) is None
    for number in (9, 10):
        (tmp_path / "commits" / str(number)).touch()
    assert reached(spark, str(tmp_path)) == {MessageQueue("t", "b", 0): 11}
