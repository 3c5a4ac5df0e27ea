"""docs/jobs.md: what it shows in Python runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clusters import AnyCluster, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)}


@pytest.mark.spark
def test_a_table_is_published_and_mirrored(
    spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic)
    for section in ("publish", "mirror"):
        (snippet,) = re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL)
        code = snippet.replace("127.0.0.1:9876", namesrv).replace('"orders.', f'"{tmp_path}/orders.')
        exec(code.replace('"orders"', f'"{topic}"').replace('"orders-copy"', f'"{topic}-copy"'), {"spark": spark})
    read = spark.read.format("rocketmq").options(namesrv=namesrv, subscribe=f"{topic}-copy").load()
    assert read.select("keys").distinct().count() == read.count() == 1000
