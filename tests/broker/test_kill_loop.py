"""Killed again and again under load, with synchronous flush: nothing acknowledged is lost, nothing is there twice.

Kills hit a broker that takes messages, some of them delayed, from two senders; or one that has just acknowledged the
last of them; or one that is starting.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenq.protocol import RequestCode
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.properties import encode_properties
from tests.broker.peers import Peer
from tests.harness.scale import scaled
from tests.realmq.ports import BROKER, NAMESRV, free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.live

KILLS = scaled(10, 50)
TOPIC = "orders"
QUEUES = 4
IN_FLIGHT = 48
BATCH = 5
UNTIL_KILLED = 1_000_000
ONE_SECOND = encode_properties({"DELAY": "1"})


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
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), line + self._process.stdout.read()

    def kill(self) -> None:
        """SIGKILL, which leaves it no time for anything."""
        self._process.kill()
        self._process.communicate()


class Sender(threading.Thread):
    """Sends ``count`` times or until the broker is gone, many at a time: single messages, batches, delayed ones.

    ``placed`` are the bodies that were acknowledged, by queue and offset, ``postponed`` those whose place is not known
    because they go to their queue later.
    """

    def __init__(self, broker: str, name: str, count: int) -> None:
        super().__init__(name=name)
        self._broker = broker
        self._count = count
        self.placed: dict[tuple[int, int], bytes] = {}
        self.postponed: set[bytes] = set()

    def run(self) -> None:
        waiting: deque[tuple[int, int, list[bytes], bool]] = deque()
        try:
            with Peer(self._broker) as peer:
                for number in range(self._count):
                    waiting.append(self._send(peer, number))
                    if len(waiting) > IN_FLIGHT:
                        self._take_answer(peer, *waiting.popleft())
                for request in waiting:
                    self._take_answer(peer, *request)
        except OSError:
            pass

    def _send(self, peer: Peer, number: int) -> tuple[int, int, list[bytes], bool]:
        queue = number % QUEUES
        body = f"{self.name} {number} ".encode() + b"." * (number % 200)
        header = peer.send_header(TOPIC, queue)
        if number % 7 == 0:
            bodies = [body + b" %d" % part for part in range(BATCH)]
            batch = encode_batch([BatchEntry(part) for part in bodies])
            return peer.send(RequestCode.SEND_BATCH_MESSAGE, header, batch), queue, bodies, False
        if number % 20 == 1:
            header = peer.send_header(TOPIC, queue, properties=ONE_SECOND)
            return peer.send(RequestCode.SEND_MESSAGE_V2, header, body), queue, [body], True
        return peer.send(RequestCode.SEND_MESSAGE_V2, header, body), queue, [body], False

    def _take_answer(self, peer: Peer, opaque: int, queue: int, bodies: list[bytes], delayed: bool) -> None:
        answer = peer.answer(opaque)
        assert answer.code == 0, answer.remark
        if delayed:
            self.postponed.update(bodies)
        else:
            first = int(answer.ext["queueOffset"])
            self.placed.update({(queue, first + at): body for at, body in enumerate(bodies)})


class Ledger:
    """What was acknowledged, compared with what is there."""

    def __init__(self) -> None:
        self._placed: dict[tuple[int, int], bytes] = {}
        self._read: list[list[bytes]] = [[] for _ in range(QUEUES)]
        self._seen: set[bytes] = set()
        self.postponed: set[bytes] = set()

    def acknowledge(self, sender: Sender) -> None:
        self._placed |= sender.placed
        self.postponed |= sender.postponed - self._seen

    def check_new(self, peer: Peer) -> None:
        """Read on in each queue: what comes is new, and what was acknowledged is in its place."""
        for queue, read in enumerate(self._read):
            for body in self._rest(peer, queue, len(read)):
                assert body not in self._seen
                assert self._placed.pop((queue, len(read)), body) == body
                self._seen.add(body)
                self.postponed.discard(body)
                read.append(body)
        assert self._placed == {}

    def is_whole(self, peer: Peer) -> bool:
        """Whether what was delayed is there too by now."""
        self.check_new(peer)
        return not self.postponed

    def check_all(self, peer: Peer) -> None:
        """See that every queue still is what was read of it, part by part; delayed messages may have joined it."""
        for queue, read in enumerate(self._read):
            assert list(self._rest(peer, queue, 0))[: len(read)] == read

    def _rest(self, peer: Peer, queue: int, offset: int) -> Iterator[bytes]:
        while messages := peer.pull(TOPIC, offset, queue):
            assert [message.queue_offset for message in messages] == list(range(offset, offset + len(messages)))
            offset += len(messages)
            yield from [message.body for message in messages]


def send_for_a_while(served: Served, name: str, chance: random.Random, *, to_the_end: bool) -> list[Sender]:
    """Let two senders work until they have the last answer, or for a random time."""
    count = chance.randrange(1, 60) if to_the_end else UNTIL_KILLED
    senders = [Sender(served.broker, f"{name}-{part}", count) for part in "ab"]
    for sender in senders:
        sender.start()
    if to_the_end:
        for sender in senders:
            sender.join()
    else:
        time.sleep(chance.uniform(0.0, 0.5))
    return senders


@pytest.mark.slow
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, rng: random.Random) -> None:
    ledger = Ledger()
    served = Served(tmp_path)
    served.start()
    try:
        for kill in range(KILLS):
            senders = []
            if kill % 5 == 4:
                time.sleep(rng.uniform(0.0, 0.5))
            else:
                served.wait_ready()
                with Peer(served.broker) as peer:
                    ledger.check_new(peer)
                senders = send_for_a_while(served, str(kill), rng, to_the_end=kill % 5 < 2)
            served.kill()
            for sender in senders:
                sender.join()
                ledger.acknowledge(sender)
            served.start()
        served.wait_ready()
        with Peer(served.broker) as peer:
            wait_until(lambda: ledger.is_whole(peer), lambda: f"{len(ledger.postponed)} delayed messages")
            ledger.check_all(peer)
    finally:
        served.kill()
