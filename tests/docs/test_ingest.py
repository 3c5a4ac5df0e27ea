"""docs/jobs.md on ingest: what it shows in Python runs, and its options are those of the command."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
from typer.models import OptionInfo

import evenq
from evenq.cli.ingest import ingest
from evenq.model import Message
from tests.clusters import AnyCluster, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
SECTION = next(part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if part.startswith("ingest\n"))


def test_every_option_is_told_of() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z]+", TEXT.partition("\n## ")[0] + SECTION))
    signature = inspect.signature(ingest, eval_str=True)
    for name, parameter in signature.parameters.items():
        options = [each for each in get_args(parameter.annotation) if isinstance(each, OptionInfo)]
        for option in options:
            # the first of the names stands where a default would
            given = [text for text in (option.default, *(option.param_decls or ())) if isinstance(text, str)]
            flags = [text for text in given if text.startswith("--")] or [f"--{name}"]
            if name not in ("namesrv", "option"):
                assert named & set(flags), flags


@pytest.mark.spark
def test_the_snippet_runs(spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path) -> None:
    create_topic(embedded_cluster.namesrv, topic)
    with evenq.Producer(embedded_cluster.namesrv) as producer:
        producer.send(Message(topic, b"one"))
    (snippet,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    code = snippet.replace("127.0.0.1:9876", embedded_cluster.namesrv).replace('"orders.', f'"{tmp_path}/orders.')
    names: dict[str, object] = {"spark": spark}
    exec(code.replace('"orders"', f'"{topic}"'), names)
    assert spark.read.parquet(str(tmp_path / "orders.table")).count() == 1
