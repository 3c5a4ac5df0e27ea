"""``evenq simulate --spark`` as it is called: tables, pictures, one page, and a word on how long it took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from evenq.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_command_writes_tables_and_a_page_and_goes_on_when_given_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "whatif"
    command = "simulate --spark --groups 2000 --queues uniform:4-6 --members uniform:2-3 -s AVG -s STICKY"

    def run() -> str:
        with pytest.raises(SystemExit) as ended:
            main([*command.split(), "--out", str(out)])
        told = capsys.readouterr()
        assert ended.value.code == 0, told.err
        return told.out

    first = run()
    assert first.startswith("2,000 groups of uniform:4-6 queues, uniform:2-3 members, join; means over all groups")
    assert "2,000 groups in 6 chunks: " in first
    assert f"Tables: {out}/strategies, shapes, histograms, chunks. Page: {out}/whatif.html" in first
    assert {row["strategy"] for row in pq.read_table(out / "strategies").to_pylist()} == {"AVG", "STICKY"}
    page = (out / "whatif.html").read_text()
    titles = ("Movement against evenness", "Queues moved, by members", "Queues moved, by queues", "The fullest member")
    assert all(title in page for title in titles)
    for number in range(1, 5):
        ElementTree.parse(out / f"whatif-{number}.svg")
    assert "2,000 groups in 6 chunks, 6 of them in an earlier run: " in run()
