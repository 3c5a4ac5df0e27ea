"""A Spark session for the tests that need one, and topics with something in them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

import evenq
from evenq.model import SendResult
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the run. Its Python workers are this Python, which has evenq."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is missing: install evenq[spark]")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("Java is missing: install Java 17 or later")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = sql.SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


Send = Callable[[Iterable[evenq.Message]], list[SendResult]]


@pytest.fixture
def send(any_cluster: AnyCluster, topic: str) -> Iterator[Send]:
    """Sends to a topic that is there on all brokers with two queues each; gives the receipts.

    A real broker takes a moment to enter a message in its queue: the messages can be read when this returns.
    """
    create_topic(any_cluster.namesrv, topic, queues=2)
    options = read_options({"namesrv": any_cluster.namesrv, "subscribe": topic})
    with evenq.Producer(any_cluster.namesrv, group="spark-tests") as producer, Lookup(options) as lookup:

        def send_all(messages: Iterable[evenq.Message]) -> list[SendResult]:
            receipts = [future.result() for future in [producer.send_async(message) for message in messages]]
            ends = {receipt.queue: receipt.offset + 1 for receipt in sorted(receipts, key=lambda sent: sent.offset)}
            wait_until(
                lambda: all(end >= ends[queue] for queue, end in lookup.latest(ends).items()),
                "all messages that were sent in their queues",
            )
            return receipts

        yield send_all
