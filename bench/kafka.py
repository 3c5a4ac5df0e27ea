"""A Kafka broker of one node, and Spark's connector to it: what the Spark source is measured against.

The jars come through Maven into the user's cache folder, once.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until

__all__ = ["connector_jars", "kafka_broker"]

_BROKER = {"org.apache.kafka:kafka_2.13": "4.3.1", "org.apache.kafka:kafka-tools": "4.3.1"}
# The newest that there is, with what it needs and Spark does not bring.
_CONNECTOR = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": "4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": "4.0.0",
    "org.apache.kafka:kafka-clients": "3.9.2",
    "org.apache.commons:commons-pool2": "2.12.0",
}

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>evenq</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def connector_jars() -> list[Path]:
    """The jars that Spark needs to read from Kafka and write to it."""
    return sorted(_jars("connector", _CONNECTOR, _copy).iterdir())


@contextmanager
def kafka_broker(topics: Iterable[str], partitions: int) -> Iterator[str]:
    """A broker with topics of so many partitions each, until the block ends; gives its address."""
    with tempfile.TemporaryDirectory(prefix="evenq-kafka-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        port, control = _free_port(), _free_port()
        conf = folder / "server.properties"
        conf.write_text("".join(f"{key}={value}\n" for key, value in _conf(folder, port, control).items()))
        _java("kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", str(conf), folder=folder).wait(60)
        server = _java("kafka.Kafka", str(conf), folder=folder)
        try:
            wait_until(lambda: _answers(port), "a Kafka broker that answers", 60)
            address = f"127.0.0.1:{port}"
            for topic in topics:
                create = ("--create", "--topic", topic, "--partitions", str(partitions), "--bootstrap-server", address)
                made = _java("org.apache.kafka.tools.TopicCommand", *create, folder=folder).wait(60)
                if made != 0:
                    raise RuntimeError(f"topic {topic} was not made: {(folder / 'kafka.log').read_text()}")
            yield address
        finally:
            server.kill()
            server.wait()


def _conf(folder: Path, port: int, control: int) -> Mapping[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }


def _java(main: str, *arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    command = ["java", "-Xmx1g", "-cp", f"{_jars('broker', _BROKER, _copy_with_dependencies)}/*", main, *arguments]
    with (folder / "kafka.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)


def _jars(kind: str, artifacts: Mapping[str, str], fetch: Callable[[list[str], Mapping[str, str], Path], None]) -> Path:
    """The folder with the jars of some artifacts; fetched where it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "evenq" / f"kafka-{kind}-{'-'.join(artifacts.values())}"
    if not target.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise SystemExit("no Maven (mvn) found to fetch Kafka: install it, or leave kafka out")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kafka-", dir=target.parent) as temporary:
            fetch([maven, "-q", "-B"], artifacts, Path(temporary))
            (Path(temporary) / "lib").rename(target)
    return target


def _copy_with_dependencies(maven: list[str], artifacts: Mapping[str, str], folder: Path) -> None:
    needed = [_DEPENDENCY.format(*name.split(":"), version) for name, version in artifacts.items()]
    (folder / "pom.xml").write_text(_POM.format("".join(needed)))
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"]
    subprocess.run([*maven, "-f", str(folder / "pom.xml"), *goal], check=True)


def _copy(maven: list[str], artifacts: Mapping[str, str], folder: Path) -> None:
    """Each jar by itself: the POMs of Spark name repositories that are not reachable from everywhere."""
    for name, version in artifacts.items():
        goal = ["dependency:copy", f"-Dartifact={name}:{version}", f"-DoutputDirectory={folder / 'lib'}"]
        subprocess.run([*maven, *goal], check=True, cwd=folder)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
