"""``evenq consume``: what it prints is consumed, and nothing else, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from evenq import Admin, Message, Producer
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.waiting import wait_until


@pytest.fixture
def filled(any_cluster: AnyCluster, topic: str) -> str:
    """A topic with 20 messages in two queues of each broker."""
    create_topic(any_cluster.namesrv, topic, queues=2)
    send(any_cluster, topic, 20)
    return topic


def send(cluster: AnyCluster, topic: str, count: int, first: int = 0) -> None:
    with Producer(cluster.namesrv) as producer:
        receipts = [
            producer.send(Message(topic, b"m-%d" % n, tags="odd" if n % 2 else "even", keys=[f"k-{n}"]))
            for n in range(first, first + count)
        ]
    wait_shown(cluster.namesrv, receipts)


def test_formats_tags_and_counts(at_cluster: Evenq, filled: str, group: str) -> None:
    common = ("consume", filled, "--from", "first")
    raw = at_cluster(*common, "--group", group, "--count", "12", "--format", "raw")
    raw += at_cluster(*common, "--group", group, "--count", "8", "--format", "raw")
    assert sorted(raw) == sorted(f"m-{number}" for number in range(20))

    [line] = at_cluster(*common, "--group", f"{group}-text", "--count", "1")
    broker, offset, key, body = line.split()
    assert broker.startswith("broker-")
    assert (offset, key[:2], body[:2]) == ("0", "k-", "m-")

    lines = at_cluster(*common, "--group", f"{group}-json", "--count", "10", "--format", "json", "--tags", "odd")
    found = [json.loads(each) for each in lines]
    assert {each["tags"] for each in found} == {"odd"}
    assert sorted(each["body"] for each in found) == sorted(f"m-{number}" for number in range(1, 20, 2))


def test_from_a_time(at_cluster: Evenq, any_cluster: AnyCluster, filled: str, group: str) -> None:
    now = datetime.now(UTC).isoformat()
    send(any_cluster, filled, 4, first=20)
    found = at_cluster("consume", filled, "--group", group, "--from", now, "--count", "4", "--format", "raw")
    assert sorted(found) == [f"m-{number}" for number in range(20, 24)]


@contextmanager
def running(cluster: AnyCluster, topic: str, group: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", "from evenq.cli import main; main()", "consume", topic, "--group", group]
    command += ["--from", "first", "--format", "raw", "--instance", f"{group}-1"]
    environment = {**os.environ, "EVENQ_NAMESRV": cluster.namesrv}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_everything_is_handed_over(
    any_cluster: AnyCluster, filled: str, group: str, number: signal.Signals
) -> None:
    with running(any_cluster, filled, group) as process, Admin(any_cluster.namesrv) as admin:
        assert process.stdout is not None
        printed = [process.stdout.readline().strip() for _ in range(20)]
        assert sorted(printed) == sorted(f"m-{each}" for each in range(20))
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""
        assert sum(row.offset for row in admin.progress(group, filled).queues) == 20
        wait_until(lambda: admin.members(group).members == (), "no members left")


def test_a_reader_that_has_had_enough_ends_it_quietly(any_cluster: AnyCluster, filled: str, group: str) -> None:
    with running(any_cluster, filled, group) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        send(any_cluster, filled, 4, first=20)
        assert process.wait(20) == 0


def test_mistakes_are_named(evenq: Evenq) -> None:
    assert evenq.error("consume", "t", "--count", "0").startswith("--count=0")
    assert evenq.error("consume", "t", "--from", "yesterday").startswith("--from='yesterday'")
    assert evenq.error("consume", "t", "--sql", "a > 1", "--tags", "x").startswith("--sql='a > 1'")
