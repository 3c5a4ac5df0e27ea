"""``PushConsumer.run`` in processes that get SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from evenq import LitePullConsumer, Message, MessageQueue, Producer
from evenq.testing import EmbeddedCluster
from tests.clusters import create_topic

pytestmark = pytest.mark.live

SYNC = """
consumer = evenq.PushConsumer(NAMESRV, GROUP, begin="first", timeouts=evenq.Timeouts(drain=60))
consumer.subscribe(TOPIC)
with consumer:
    consumer.run(handler)
"""
ASYNC = """
async def main():
    async with evenq.aio.PushConsumer(NAMESRV, GROUP, begin="first", timeouts=evenq.Timeouts(drain=60)) as consumer:
        consumer.subscribe(TOPIC)
        await consumer.run(handler)

asyncio.run(main())
"""
PROGRAM = """
import asyncio, os, signal, sys, time
import evenq

def terminate():
    os.kill(os.getpid(), signal.SIGTERM)

NAMESRV, TOPIC, GROUP = sys.argv[1:]
"""


def run(cluster: EmbeddedCluster, topic: str, group: str, *parts: str) -> subprocess.CompletedProcess[str]:
    create_topic(cluster.namesrv, topic, queues=1)
    with Producer(cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))
    command = [sys.executable, "-c", PROGRAM + "".join(parts), cluster.namesrv, topic, group]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def committed(cluster: EmbeddedCluster, topic: str, group: str) -> int | None:
    with LitePullConsumer(cluster.namesrv, group) as consumer:
        return consumer.committed(MessageQueue(topic, "broker-a", 0))


@pytest.mark.parametrize("main", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_running_call_ends_and_is_committed(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, main: str
) -> None:
    handler = """
def handler(messages):
    terminate()
    time.sleep(1)
    print("handled")
"""
    end = 'print("ended", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)'
    done = run(embedded_cluster, topic, group, handler, main, end)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["handled", "ended", "True"]
    assert done.stderr == ""
    assert committed(embedded_cluster, topic, group) == 1


@pytest.mark.parametrize("main", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_second_signal_ends_the_process_at_once(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, main: str
) -> None:
    handler = """
def handler(messages):
    terminate()
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        time.sleep(0.01)
    terminate()
    time.sleep(600)
"""
    done = run(embedded_cluster, topic, group, handler, main)
    assert done.returncode == -signal.SIGTERM
    assert done.stderr == ""


@pytest.mark.parametrize("main", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_handler_of_the_programs_own_stays_in_place(
    embedded_cluster: EmbeddedCluster, topic: str, group: str, main: str
) -> None:
    own = """
def ask(number, frame):
    print("asked", flush=True)
    os._exit(7)

signal.signal(signal.SIGTERM, ask)

def handler(messages):
    terminate()
    time.sleep(600)
"""
    done = run(embedded_cluster, topic, group, own, main)
    assert done.returncode == 7
    assert done.stdout == "asked\n"
