"""docs/jobs.md: the what-if that it shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()


@pytest.mark.spark
def test_a_population_is_simulated(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = TEXT.partition("\n## simulate\n")[2].partition("\n## ")[0]
    (snippet,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(snippet.replace('"whatif"', f'"{tmp_path}/whatif"'), {"spark": spark})
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in told] == ["AVG", "CONSISTENT_HASH", "STICKY"]
    assert told[2][2] == "1.0"
    assert (tmp_path / "whatif" / "strategies").is_dir()
