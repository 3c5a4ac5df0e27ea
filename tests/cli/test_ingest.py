"""``evenq ingest`` as it is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import evenq
from evenq.model import Message
from evenq.spark.jobs.files import LocalFiles
from evenq.spark.jobs.publishing import data_files
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

COMMAND = [sys.executable, "-c", "from evenq.cli import main; main()", "ingest"]
SMALL = ("--master", "local[1]", "--conf", "spark.driver.memory=512m")


@pytest.fixture
def filled(embedded_cluster: AnyCluster, topic: str) -> str:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    send(embedded_cluster.namesrv, topic, 0, 20)
    return topic


def send(namesrv: str, topic: str, first: int, last: int) -> None:
    with evenq.Producer(namesrv) as producer:
        for number in range(first, last):
            producer.send(Message(topic, b'{"id": %d}' % number if number % 10 else b"%d" % number))


def rows(table: Path) -> int:
    return int(ds.dataset(table, partitioning="hive").count_rows()) if table.exists() else 0


def test_once_in_a_process_of_its_own_is_silent_but_for_its_summary(
    embedded_cluster: AnyCluster, filled: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    given = [filled, str(table), "--once", "--schema", "id INT", "--compact", "-n", embedded_cluster.namesrv, *SMALL]
    done = subprocess.run([*COMMAND, *given], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr
    summary = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (summary["rows"], summary["finished"], summary["table"]) == ("18", "yes", str(table))
    assert (rows(table), rows(tmp_path / "table-bad")) == (18, 2)


def test_ctrl_c_stops_a_stream_cleanly_and_the_same_command_goes_on(
    embedded_cluster: AnyCluster, filled: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    command = [*COMMAND, filled, str(table), "--every", "200 milliseconds", "-n", embedded_cluster.namesrv, *SMALL]
    for last in (20, 30):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            try:
                wait_until(lambda last=last: rows(table) == last, f"{last} rows", 300)  # type: ignore[misc]
                running.send_signal(signal.SIGINT if last == 20 else signal.SIGTERM)
                out, err = running.communicate(timeout=180)
            finally:
                running.kill()
        assert running.returncode == 0, err
        assert "stopped: the same command goes on from here" in err
        assert "Traceback" not in err
        # the files are there before the batch counts as done: a stop between the two leaves that to the next run
        told = dict(line.split() for line in out.splitlines() if len(line.split()) == 2)
        assert int(told["rows"]) in ((20, 0) if last == 20 else (10, 30))
        send(embedded_cluster.namesrv, filled, 20, 30)
    assert rows(table) == 30


@pytest.fixture
def active(spark: object) -> None:
    """The session of the tests is the one that commands find."""


@pytest.mark.usefixtures("active")
def test_json_is_for_programs(evenq: Evenq, embedded_cluster: AnyCluster, filled: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    common = ("ingest", filled, str(table), "--once", "--namesrv", embedded_cluster.namesrv)
    done = evenq.json(*common, "--most", "7", "--group", "shown", "--write", "compression=snappy")
    assert (done["rows"], done["bad"], done["finished"], done["batches"]) == (20, 0, True, 3)
    assert len(data_files(LocalFiles().walk(str(table)))) == done["files"]
    assert evenq.json(*common)["rows"] == 0


@pytest.mark.live
@pytest.mark.usefixtures("active")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--format", "delta"], "format='delta': Spark has no such format here; add its package"),
        (["--schema", "id NOTHING"], "schema='id NOTHING'"),
        (["--conf", "memory=2g"], "Spark's settings begin with spark."),
        (["--master", "spark://nowhere:7077"], "Spark runs already"),
        (["--tags", "a", "--option", "tags=b"], "tags='b': this is given twice"),
        (["--option", "subscribePattern=x"], "say in one way what to read"),
        (["--option", "nonsense=1"], "nonsense"),
        ([], "no name server answers"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(evenq: Evenq, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    error = evenq.error(
        "ingest", "orders", str(tmp_path / "t"), "--once", "--json", "--namesrv", "127.0.0.1:1", *arguments
    )
    assert complaint in error
    assert not list(tmp_path.rglob("*.parquet"))


def test_spark_that_is_missing_is_one_line(evenq: Evenq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenq.spark.jobs.session.find_spec", lambda name: None)
    assert 'pip install "evenq[spark]"' in evenq.error("ingest", "orders", str(tmp_path / "t"))
    assert not list(tmp_path.iterdir())


def test_under_spark_submit_the_session_is_that_of_spark_submit(
    embedded_cluster: AnyCluster, filled: str, tmp_path: Path
) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is missing: install evenq[spark]")
    home = Path(pyspark.__file__).parent
    program = tmp_path / "run.py"
    program.write_text("from evenq.cli import main\nmain()\n")
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    given = ["ingest", filled, str(tmp_path / "table"), "--once", "--json", "-n", embedded_cluster.namesrv]
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    done = subprocess.run(
        [*submit, str(program), *given],
        env={**os.environ, **own},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == rows(tmp_path / "table") == 20
