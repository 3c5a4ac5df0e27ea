"""The same program on a standalone cluster and under Spark Connect, each in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import evenq
from tests.clusters import AnyCluster, create_topic
from tests.spark.processes import SPARK, environment, one_connect_server
from tests.waiting import wait_until

PROGRAM = Path(__file__).with_name("roundtrip.py")
QUIET = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}


@contextmanager
def daemon(name: str, *arguments: str, folder: Path) -> Iterator[Path]:
    """One of Spark's own servers, until the block ends; gives the file that it writes to."""
    output = folder / f"{name}.log"
    with output.open("w") as file:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(folder, SPARK_NO_DAEMONIZE="1", SPARK_DAEMON_MEMORY="256m"),
        )
        try:
            yield output
        finally:
            process.terminate()
            process.wait(30)


def found(output: Path, pattern: str) -> str | None:
    match = re.search(pattern, output.read_text())
    return match[1] if match else None


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster: a master and two workers with a core each; gives its address."""
    folder = tmp_path_factory.mktemp("standalone")
    with ExitStack() as stack:
        place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = stack.enter_context(daemon("master", "org.apache.spark.deploy.master.Master", *place, folder=folder))
        address = wait_until(
            lambda: found(log, r"(spark://127\.0\.0\.1:\d+)"), lambda: f"a master: {log.read_text()}", 60
        )
        for name in ("worker-1", "worker-2"):
            size = ("--cores", "1", "--memory", "768m")
            stack.enter_context(
                daemon(name, "org.apache.spark.deploy.worker.Worker", *place, *size, address, folder=folder)
            )
        wait_until(lambda: log.read_text().count("Registering worker") >= 2, lambda: f"workers: {log.read_text()}", 60)
        yield address


def run(cluster: AnyCluster, topic: str, folder: Path, **more: str) -> dict[str, Any]:
    create_topic(cluster.namesrv, topic, queues=2)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), cluster.namesrv, topic, str(folder)],
        env=environment(folder, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


EXPECTED = {"batch": [1000, 1000, 499_500], "stream": 1000}


def test_a_standalone_cluster(embedded_cluster: AnyCluster, master: str, topic: str, tmp_path: Path) -> None:
    settings = {"spark.master": master, "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", **QUIET}
    arguments = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    result = run(embedded_cluster, topic, tmp_path, PYSPARK_SUBMIT_ARGS=f"{arguments} pyspark-shell")
    assert result == {"kind": "pyspark.sql.session", **EXPECTED}


def test_spark_connect(embedded_cluster: AnyCluster, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio: install evenq[spark]")
    arguments = " ".join(f"--conf {name}={value}" for name, value in QUIET.items())
    remote = {"SPARK_REMOTE": "local[2]", "PYSPARK_SUBMIT_ARGS": f"{arguments} pyspark-shell"}
    with one_connect_server():
        result = run(embedded_cluster, topic, tmp_path, **remote)
    assert result == {"kind": "pyspark.sql.connect.session", **EXPECTED}


def test_jobs_on_a_standalone_cluster(embedded_cluster: AnyCluster, master: str, topic: str, tmp_path: Path) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    with evenq.Producer(namesrv) as producer:
        producer.send_batch([evenq.Message(topic, b"x", keys=[f"k{number}"]) for number in range(300)], split=True)

    def job(*arguments: str) -> dict[str, Any]:
        settings = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", **QUIET}
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [sys.executable, "-c", "from evenq.cli import main; main()", *arguments, "--master", master, *given],
            env=environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    shared = ("--namesrv", namesrv, "--json")
    ingested = job("ingest", topic, str(tmp_path / "table"), "--once", *shared)
    assert (ingested["rows"], ingested["bad"], ingested["finished"]) == (300, 0, True)
    assert pq.read_table(tmp_path / "table").num_rows == 300
    audited = job("audit", topic, "--out", str(tmp_path / "audit"), *shared)
    (found,) = audited["topics"]
    assert found["messages"] == 300
