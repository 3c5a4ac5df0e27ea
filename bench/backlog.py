"""What a handler gets of a queue that its member has just gained, when the queue has a backlog.

``python -m bench.backlog [--messages 20000] [--work 0.005] [--queues 1 8]``. One member with 20 calls at a time, whose
handler waits as if for a database; an embedded broker. For each window of half a second after the first call: how many
calls ran at most at a time, with ``ramp_up`` as it is by default and without; and how long all messages took.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import uuid

from rich.console import Console
from rich.table import Table

import evenq
from evenq.testing import cluster
from tests.clusters import create_topic

CALLS = 20
WINDOW = 0.5
WINDOWS = 8


class Handler:
    """Waits, and notes how many calls run at a time."""

    def __init__(self, messages: int, work: float) -> None:
        self._lock = threading.Lock()
        self._left = messages
        self._work = work
        self._running = 0
        self._began = 0.0
        self.seconds = 0.0
        self.most = [0] * WINDOWS
        self.done = threading.Event()

    def __call__(self, messages: list[evenq.MessageView]) -> None:
        with self._lock:
            now = time.perf_counter()
            self._began = self._began or now
            self._running += 1
            window = int((now - self._began) / WINDOW)
            if window < WINDOWS:
                self.most[window] = max(self.most[window], self._running)
        time.sleep(self._work)
        with self._lock:
            self._running -= 1
            self._left -= len(messages)
            if not self._left:
                self.seconds = time.perf_counter() - self._began
                self.done.set()


def measure(namesrv: str, topic: str, messages: int, work: float, ramp_up: float) -> Handler:
    handler = Handler(messages, work)
    group = f"bench-{uuid.uuid4().hex[:12]}"
    with evenq.PushConsumer(namesrv, group, begin="first", concurrency=CALLS, ramp_up=ramp_up) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        handler.done.wait()
    return handler


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--work", type=float, default=0.005)
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    windows = [f"to {(number + 1) * WINDOW:g} s" for number in range(WINDOWS)]
    table = Table("queues", "ramp_up", *windows, "all messages, s", title=f"calls at a time, of {CALLS}")
    with cluster(brokers=1) as running:
        for queues in arguments.queues:
            topic = f"backlog-{queues}"
            create_topic(running.namesrv, topic, queues=queues)
            with evenq.Producer(running.namesrv) as producer:
                for number in range(arguments.messages // 100):
                    queue = evenq.MessageQueue(topic, "broker-a", number % queues)
                    producer.send_batch([evenq.Message(topic, b"x" * 100)] * 100, queue=queue)
            for ramp_up in (3.0, 0.0):
                count = arguments.messages // 100 * 100
                found = measure(running.namesrv, topic, count, arguments.work, ramp_up)
                table.add_row(str(queues), f"{ramp_up:g}", *map(str, found.most), f"{found.seconds:.1f}")
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
