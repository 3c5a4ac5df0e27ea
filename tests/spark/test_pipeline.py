"""The example of a declarative pipeline, run by ``spark-pipelines`` as people run it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import evenq
from evenq.testing import cluster
from tests.clusters import AnyCluster, create_topic
from tests.spark.processes import SPARK, environment, one_connect_server

pytestmark = pytest.mark.live

pytest.importorskip("yaml", reason="spark-pipelines needs PyYAML: install pyspark[pipelines]")

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
CUSTOMERS = 3


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example in a folder of its own, which its storage is in too."""
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    changed = spec.read_text().replace("file:///tmp/orders-pipeline", f"file://{folder / 'storage'}")
    assert changed != spec.read_text()
    spec.write_text(changed)
    return folder


@pytest.fixture
def shop() -> Iterator[AnyCluster]:
    """A cluster of its own: the example's topic has a fixed name."""
    with cluster(brokers=2) as running:
        create_topic(running.namesrv, "orders", queues=2)
        yield running


def run(project: Path, shop: AnyCluster) -> None:
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    done = subprocess.run(
        [
            str(SPARK / "bin" / "spark-pipelines"),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            *("run", "--spec", "spark-pipeline.yml"),
        ],
        cwd=project,
        env=environment(project / "local", EVENQ_NAMESRV=shop.namesrv),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Run is COMPLETED" in done.stdout


def table(project: Path, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for file in sorted((project / "spark-warehouse" / name).glob("*.parquet")):
        rows += pq.ParquetFile(file).read().to_pylist()
    return rows


def send(shop: AnyCluster, numbers: range) -> None:
    with evenq.Producer(shop.namesrv, group="shop") as producer:
        for number in numbers:
            body = {"order": number, "customer": f"c-{number % CUSTOMERS}", "total": 1.5}
            producer.send(evenq.Message("orders", json.dumps(body).encode(), keys=[f"o-{number}"]))


def test_every_run_adds_what_is_new_and_nothing_twice(shop: AnyCluster, project: Path) -> None:
    for numbers in (range(30), range(30, 45)):
        send(shop, numbers)
        with one_connect_server():
            run(project, shop)
        everything = range(numbers.stop)
        assert Counter(row["keys"] for row in table(project, "orders")) == {f"o-{number}": 1 for number in everything}
        bought = Counter(f"c-{number % CUSTOMERS}" for number in everything)
        assert {row["customer"]: (row["orders"], row["total"]) for row in table(project, "customers")} == {
            customer: (orders, 1.5 * orders) for customer, orders in bought.items()
        }
    with evenq.Admin(shop.namesrv) as admin:
        assert admin.progress("orders-pipeline").lag == 0, "the group shows how far the pipeline is"
