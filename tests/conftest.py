"""What all suites share: clusters, Java clients, names, and the rule about skipped suites.

| fixture | what it gives |
| --- | --- |
| ``real_cluster`` | Apache RocketMQ, two brokers, one for the whole run |
| ``embedded_cluster`` | evenq's own, two brokers, one for the whole run |
| ``any_cluster`` | both, one after the other: a test of a client runs twice |
| ``java`` | a JVM for Java clients and ``mqadmin``, one for the whole run; its clients are stopped after the test |
| ``own_java`` | makes further JVMs, for clients that are to be killed; they end with the test |
| ``spark`` | a Spark session, ``local[2]``, one for the whole run |
| ``topic``, ``group`` | names that no other test has |
| ``rng`` | random numbers that follow from the seed at the top of the run |

A test that stops brokers makes a cluster of its own; one that needs its topic on all brokers from the start creates it
with :func:`tests.clusters.create_topic`. Tests in ``tests/interop`` and ``tests/spark`` are marked so by
their folder, and whoever asks for Apache RocketMQ or Java clients is marked ``interop``. Such a test skips where what
it needs is missing, unless its mark stands in ``EVENQ_REQUIRE`` (``EVENQ_REQUIRE=spark,interop``): then it fails.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings

from tests.clusters import AnyCluster
from tests.harness import live, order, second_try, seeds, spark_jvm
from tests.harness.scale import examples
from tests.harness.shared import ClusterShare, ask_for_cluster
from tests.realmq import JavaHost, RealCluster, Unavailable

# How long an example takes, and to make one, depends on what else the machine does.
settings.register_profile(
    "evenq", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("evenq")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUITES = ("interop", "spark")
_INTEROP_FIXTURES = {"real_cluster", "java", "own_java"}
_HERE = Path(__file__).parent
_SHARE = pytest.StashKey[ClusterShare]()
T = TypeVar("T")


# Clusters and clients


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    worker = getattr(request.config, "workerinput", None)
    if worker is not None:
        yield _or_skip(lambda: ask_for_cluster(worker["cluster_share"]))
        return
    with _or_skip(RealCluster) as running:
        yield running


@pytest.fixture(scope="session")
def embedded_cluster() -> Iterator[AnyCluster]:
    from evenq.testing import cluster

    with cluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="session", params=["embedded_cluster", pytest.param("real_cluster", marks=pytest.mark.interop)])
def any_cluster(request: pytest.FixtureRequest) -> AnyCluster:
    return cast(AnyCluster, request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def java_host() -> Iterator[JavaHost]:
    with _or_skip(JavaHost) as host:
        yield host


@pytest.fixture
def java(java_host: JavaHost) -> Iterator[JavaHost]:
    yield java_host
    java_host.stop_clients()


@pytest.fixture
def own_java() -> Iterator[Callable[[], JavaHost]]:
    with ExitStack() as hosts:
        yield lambda: hosts.enter_context(_or_skip(JavaHost))


def _or_skip(make: Callable[[], T]) -> T:
    try:
        return make()
    except Unavailable as reason:
        pytest.skip(str(reason))


# Spark

# Options for the JVM of every Spark program that tests start, in this process or in others, and for the JVM that only
# finds out how to start it. Unlike JAVA_TOOL_OPTIONS, they leave no line on standard error.
os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = spark_jvm.OPTIONS

_SPARK = {
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
    session = sql.SparkSession.builder.master("local[2]").config(map=_SPARK).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _let_spark_call_back(session)
    yield session
    session.stop()


def _let_spark_call_back(session: SparkSession) -> None:
    """Spark's calls to ``foreachBatch`` are taken by a thread that waits with ``select``: it would end without a word
    where its socket has a number over 1023, as in a process with very many files, and a query would wait for ever."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    number = gateway._callback_server.server_socket.fileno()
    assert number < 1024, f"{number} files are open: who has left them?"


# Names


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Randomness of the test's own, from the run's seed."""
    return seeds.generator(request.node)


# How a run is set up


def pytest_addoption(parser: pytest.Parser) -> None:
    seeds.add_option(parser)
    second_try.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    seeds.apply(config)
    if config.option.second_try and not hasattr(config, "workerinput"):
        config.pluginmanager.register(second_try.SecondTry(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SHARE in config.stash:
        config.stash[_SHARE].close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> order.SparkApart | None:
    return order.SparkApart(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of pytest-xdist is told the seed, and where the shared cluster is to be had."""
    node.workerinput["seed"] = node.config.option.seed
    if _SHARE not in node.config.stash:
        node.config.stash[_SHARE] = ClusterShare()
    node.workerinput["cluster_share"] = node.config.stash[_SHARE].address


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (repeat with --seed {config.option.seed})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if live.is_live(item):
        return (yield)
    with live.forbid_starts(item):
        return (yield)


# The rule about skipped suites


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in _marks_of(item.path) | _marks_of_fixtures(item):
            item.add_marker(mark)
    order.arrange(items)


def _marks_of(path: Path) -> set[str]:
    return set(SUITES).intersection(path.relative_to(_HERE).parts[:1] if path.is_relative_to(_HERE) else ())


def _marks_of_fixtures(item: pytest.Item) -> set[str]:
    fixtures = set(getattr(item, "fixturenames", ()))
    marks = {"interop"} if fixtures & _INTEROP_FIXTURES else set()
    return marks | {"live"} if fixtures & live.LIVE_FIXTURES else marks


def _required(marks: set[str]) -> bool:
    return bool(marks.intersection(os.environ.get("EVENQ_REQUIRE", "").split(",")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail") and _required({mark.name for mark in item.iter_markers()}):
        _fail_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _required(_marks_of(collector.path)):
        _fail_skipped(report)
    return report


def _fail_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"EVENQ_REQUIRE does not let this skip: {report.longreprtext}"
