"""Killed again and again under load, with synchronous flush: nothing acknowledged is lost, nothing is there twice.

The load is messages of all kinds from two senders, a topic that is deleted and made again, and a group that commits its
offsets. Kills hit a broker that is busy with all that; or one that has just answered the last of it; or one that is
starting. Now and then it is stopped instead, which loses no offset either.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.broker.peers import Peer
from tests.broker.torture.traffic import Ledger, PassingTopic, Progress, Sender, commit_offsets, renew_topic, work
from tests.harness.scale import scaled
from tests.realmq.ports import BROKER, NAMESRV, free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.live

KILLS = scaled(10, 60)
UNTIL_KILLED = 1_000_000


class Served:
    """``evenq serve`` with one data directory on the same ports, whenever it is started."""

    def __init__(self, data: Path) -> None:
        namesrv, broker = free_ports(NAMESRV, BROKER)
        self.broker = f"127.0.0.1:{broker}"
        ports = ["--namesrv-port", str(namesrv), "--broker-port", str(broker)]
        start = "from evenq.cli import main; main()"
        self._command = [sys.executable, "-c", start, "serve", "--data", str(data), "--flush", "sync", *ports]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_ready(self) -> None:
        """All that it may have found is that the kill cut off what it wrote last, or interrupted a deletion."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready "):
                return
            if "no whole message follows" not in line and "was being deleted" not in line:
                self._process.kill()
                raise AssertionError(line + self._process.stdout.read())
        raise AssertionError("the broker ended")

    def kill(self) -> None:
        """SIGKILL, which leaves it no time for anything."""
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        output, _ = self._process.communicate(timeout=30)
        assert self._process.returncode in (0, 143), output


class Load:
    """Clients of all kinds, who know what they were told; what they know outlives the broker."""

    def __init__(self, broker: str, chance: random.Random) -> None:
        self._broker = broker
        self._chance = chance
        self._ledger = Ledger()
        self._topic = PassingTopic()
        self._progress = Progress()
        self._senders: list[Sender] = []
        self._threads: list[threading.Thread] = []

    def start(self, name: str, *, to_the_end: bool) -> None:
        """Let all of them work until they have their last answers, or for a random time."""
        count = self._chance.randrange(1, 60) if to_the_end else UNTIL_KILLED
        self._senders = [Sender(self._broker, f"{name}-{part}", count) for part in "ab"]
        self._threads = [
            *(work("sender", sender.run) for sender in self._senders),
            work("renewer", lambda: renew_topic(self._broker, self._topic, count % 6 if to_the_end else count)),
            work("reader", lambda: commit_offsets(self._broker, self._progress, count)),
        ]
        if to_the_end:
            self._join()
        else:
            time.sleep(self._chance.uniform(0.0, 0.5))

    def broker_is_gone(self) -> None:
        self._join()
        for sender in self._senders:
            self._ledger.acknowledge(sender)
        self._senders = []

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def check(self, *, stopped: bool) -> None:
        """See that a broker that has started again knows what it has acknowledged."""
        with Peer(self._broker) as peer:
            self._ledger.check_new(peer)
            self._topic.check(peer)
            self._progress.check(peer, stopped=stopped)

    def check_all(self) -> None:
        with Peer(self._broker) as peer:
            wait_until(lambda: self._ledger.is_whole(peer), lambda: f"{len(self._ledger.postponed)} delayed messages")
            self._ledger.check_all(peer)


@pytest.mark.slow
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, rng: random.Random) -> None:
    served = Served(tmp_path)
    load = Load(served.broker, rng)
    stopped = False
    served.start()
    try:
        for kill in range(KILLS):
            starting = kill % 5 == 4
            if starting:
                time.sleep(rng.uniform(0.0, 0.5))
            else:
                served.wait_ready()
                load.check(stopped=stopped)
                load.start(str(kill), to_the_end=kill % 5 < 2)
            stopped = kill % 5 == 1 or kill % 10 == 8
            if stopped:
                served.stop()
            else:
                served.kill()
            load.broker_is_gone()
            served.start()
        served.wait_ready()
        load.check(stopped=stopped)
        load.check_all()
    finally:
        served.kill()
