"""docs/spark.md: its tables are those of the source, and its snippets run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenq.model import Message
from evenq.protocol.columns import SCHEMA_WITH_PROPERTIES
from evenq.spark.connecting import CONNECTION
from evenq.spark.options import OPTIONS
from evenq.spark.sinkoptions import COLUMNS, WRITE_OPTIONS
from evenq.spark.table import REQUIRED, Option
from tests.clusters import AnyCluster, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)}


def rows(section: str) -> list[list[str]]:
    """The cells of all table rows of a section."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def described(option: Option) -> list[str]:
    default = option.default or ""
    return [f"`{option.name}`", default if default in ("", REQUIRED) else f"`{default}`", option.about]


def own(options: tuple[Option, ...]) -> list[list[str]]:
    return [described(option) for option in options if option not in CONNECTION]


def test_the_tables_are_those_of_the_source() -> None:
    assert rows("Read") == own(OPTIONS)
    assert rows("Connect") == [described(option) for option in CONNECTION]
    columns = [[f"`{name}`", " or ".join(f"`{kind}`" for kind in types)] for name, types in COLUMNS.items()]
    assert [row[:2] for row in rows("Write")[: len(COLUMNS)]] == columns
    assert rows("Write")[len(COLUMNS) :] == own(WRITE_OPTIONS)


def test_all_columns_are_named() -> None:
    for name in SCHEMA_WITH_PROPERTIES.names:
        assert f"`{name}`" in SECTIONS["Read"]


def test_what_kafkas_options_became_is_there() -> None:
    known = {option.name for option in (*OPTIONS, *WRITE_OPTIONS)}
    for kafka, here in rows("From Kafka's connector"):
        if not kafka.startswith("columns"):
            names = kafka if here.startswith("the same") else here
            assert set(re.findall(r"`([a-zA-Z.]+)`", names)) <= known, (kafka, here)


@pytest.mark.spark
def test_the_snippets_run(
    spark: SparkSession, embedded_cluster: AnyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import evenq

    monkeypatch.chdir(tmp_path)
    create_topic(embedded_cluster.namesrv, "orders")
    with evenq.Producer(embedded_cluster.namesrv) as producer:
        producer.send(Message("orders", b"one", keys=["o-1"]))
    names: dict[str, object] = {"spark": spark}
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        code = snippet.replace("127.0.0.1:9876", embedded_cluster.namesrv)
        exec(code.replace('"orders.', f'"{tmp_path}/orders.'), names)
    assert spark.read.parquet(str(tmp_path / "orders.parquet")).count() == 1
    read = spark.read.format("rocketmq").options(namesrv=embedded_cluster.namesrv, subscribe="orders").load()
    assert read.count() == 101
