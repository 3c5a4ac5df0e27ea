"""A member that is killed: its queues go to the others at once, and only what it had in its hands comes twice."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from evenq import MessageView, PushConsumer
from tests.clusters import AnyCluster, create_topic
from tests.traffic import Traffic
from tests.waiting import wait_until

MEMBER = """
import sys, time
import evenq

namesrv, group, topic, strategy, path = sys.argv[1:]
with open(path, "a", buffering=1) as notes:
    def handler(messages):
        time.sleep(0.002)
        notes.writelines(f"{message.body.decode()}\\n" for message in messages)

    consumer = evenq.PushConsumer(namesrv, group, strategy=strategy, instance="victim", begin="first", concurrency=4)
    consumer.subscribe(topic)
    consumer.start(handler)
    while True:
        print(len(consumer.queues), flush=True)
        time.sleep(0.02)
"""


@pytest.mark.parametrize("strategy", ["AVG", "STICKY"])
def test_a_killed_members_queues_are_consumed_again_soon(
    any_cluster: AnyCluster, topic: str, group: str, strategy: str, tmp_path: Path
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=4)
    lock = threading.Lock()
    survived: list[tuple[float, MessageView]] = []

    def handler(messages: list[MessageView]) -> None:
        now = time.monotonic()
        with lock:
            survived.extend((now, message) for message in messages)

    notes = tmp_path / "victim.txt"
    notes.touch()
    command = [sys.executable, "-c", MEMBER, namesrv, group, topic, strategy, str(notes)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim,
        PushConsumer(namesrv, group, strategy=strategy, instance="survivor", begin="first") as survivor,
    ):
        survivor.subscribe(topic)
        survivor.start(handler)
        assert victim.stdout is not None
        with Traffic(namesrv, topic) as traffic:
            try:
                while len(survivor.queues) != 4 or victim.stdout.readline().strip() != "4":
                    pass
                before = set(survivor.queues)
                wait_until(lambda: notes.read_text().count("\n") > 100, "messages at the victim")
            finally:
                victim.kill()
            killed = time.monotonic()
            wait_until(lambda: len(survivor.queues) == 8, lambda: f"8 queues: {survivor.queues}")
            taken = set(survivor.queues) - before

            def reached() -> bool:
                with lock:
                    return {message.queue for at, message in survived if at > killed} >= taken

            wait_until(reached, "messages of all the victim's queues")
            # without being told it would look after 20 s
            assert time.monotonic() - killed < 18

        def everything() -> Counter[str]:
            with lock:
                mine = [message.body.decode() for _, message in survived]
            return Counter(mine + notes.read_text().split())

        sent = len(traffic.sent)
        wait_until(lambda: len(everything()) == sent, lambda: f"{sent} messages: {len(everything())}")
    # What the victim had consumed and not committed is not known to anybody, and comes again. Beyond that nothing
    # does: no message came three times, and none twice to the survivor.
    assert max(everything().values()) <= 2
    bodies = [message.body for _, message in survived]
    assert len(bodies) == len(set(bodies))
