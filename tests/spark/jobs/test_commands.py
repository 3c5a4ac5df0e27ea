"""``evenq publish`` and ``evenq mirror`` as they are called: summaries, mistakes in one line, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic
from tests.spark.jobs.test_publish import numbers, orders, read, stored
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def evenq(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Evenq:
    monkeypatch.delenv("EVENQ_NAMESRV", raising=False)
    return Evenq(capsys)


def test_a_csv_file_is_published_and_mirrored(
    evenq: Evenq, spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv, copy = embedded_cluster.namesrv, f"{topic}-copy"
    create_topic(namesrv, topic, queues=2)
    lines = ["id,customer", *(f"{n},c-{n % 3}" for n in range(30))]
    (tmp_path / "orders.csv").write_text("\n".join(lines))
    table = str(tmp_path / "orders.csv")
    found = evenq.json(
        "publish", topic, table, "--format", "csv", "--read", "header=true", "--where", "id < 20",
        "--value", "struct(cast(id as int) id)", "--keys", "customer", "--property", "double=cast(id as int) * 2",
        "--state", str(tmp_path / "state"), "--namesrv", namesrv,
    )  # fmt: skip
    assert (found["rows"], found["sent"], found["finished"]) == (20, 20, True)
    assert numbers(read(spark, namesrv, topic, 20)) == Counter(range(20))

    again = evenq.json(
        "mirror", topic, "--as", copy, "--once", "--ordered", "--groups", "nobody", "--namesrv", namesrv,
        "--checkpoint", str(tmp_path / "checkpoint"),
    )  # fmt: skip
    assert (again["messages"], again["groups"], again["finished"]) == (20, [], True)
    rows = read(spark, namesrv, copy, 20, includeProperties="true")
    assert sorted((row.keys, row.properties["double"]) for row in rows) == sorted(
        (f"c-{n % 3}", str(n * 2)) for n in range(20)
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["publish", "t"], "say what to send: give files or folders, or --table, or --sql"),
        (["publish", "t", "f", "--table", "x"], "say what to send"),
        (["publish", "t", "--sql", "select 1 a", "--keys", "b"], "keys='b': Spark says"),
        (["publish", "t", "--sql", "selekt 1"], "Spark: "),
        (["publish", "t", "/nonexistent/table"], "/nonexistent/table"),
        (["publish", "t", "--sql", "select 1 a", "--rate", "0"], "rate=0: give 1 or more"),
        (["publish", "t", "--sql", "select 1 a", "--selector", "hash"], "say which column is keys"),
        (["publish", "t", "--sql", "select 1 a", "--order-by", "a"], "order is kept within a queue"),
        (["publish", "t", "--sql", "select 1 a", "--property", "x"], "--property='x': give NAME=VALUE"),
        (["publish", "t", "--sql", "select 1 a", "-o", "brokerTimeOut=soon"], "brokerTimeout='soon': give a time"),
        (["publish", "t", "--sql", "select 1 a", "--conf", "memory=1g"], "Spark's settings begin with spark."),
        (["publish", "t", "--sql", "select 1 a", "--namesrv", "127.0.0.1:1"], "no name server answers"),
        (["mirror", "t"], "that is the source itself"),
        (["mirror", "t", "--as", "u", "--ordered", "--selector", "random"], "give same or hash"),
        (["mirror", "t", "--as", "u", "--selector", "nearest"], "--selector"),
        (["mirror", "t", "--as", "u", "-o", "tag=a"], "did you mean tags?"),
        (["mirror", "t", "--as", "u", "--target-option", "x"], "--target-option='x': give NAME=VALUE"),
        (["mirror", "t", "--as", "u", "--namesrv", "127.0.0.1:1"], "no name server answers"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line(evenq: Evenq, spark: SparkSession, arguments: list[str], complaint: str) -> None:
    assert complaint in evenq.error(*arguments)
    assert not Path("evenq-publish-t").exists()
    assert not Path("evenq-mirror-t").exists()


def test_ctrl_c_ends_between_two_rounds_and_the_same_command_goes_on(
    evenq: Evenq, spark: SparkSession, embedded_cluster: AnyCluster, topic: str, tmp_path: Path
) -> None:
    namesrv, table = embedded_cluster.namesrv, str(tmp_path / "table")
    create_topic(namesrv, topic, queues=2)
    orders(spark, 400).write.parquet(table)
    command = ["publish", topic, table, "--namesrv", namesrv, "--state", str(tmp_path / "state")]
    running = subprocess.Popen(
        [sys.executable, "-c", "from evenq.cli import main; main()", *command, "--rate", "15", "--master", "local[2]"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: stored(namesrv, topic) > 10 or running.poll() is not None, "some rows sent", 300)
        # as a terminal does: to all processes
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=300)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert running.returncode == 130, err
    assert "stopped; the same command goes on from here" in err
    assert "Traceback" not in err
    sent = stored(namesrv, topic)
    assert 0 < sent < 400
    assert f"{sent}" in out
    done = evenq.json(*command)
    assert (done["sent"], done["sent_before"]) == (400 - sent, sent)
    assert done["finished"]
    assert numbers(read(spark, namesrv, topic, 400)) == Counter(range(400)), "nothing twice, nothing missing"
