"""A member of a group, to be run as a process: it notes what it handles and which queues it holds.

Arguments: name server, group, topic, strategy, kind (``push``, ``orderly`` or ``lite``), its name, the file for its
notes, and for how many seconds it counts on a lock. SIGTERM lets it leave the group in good order. A note is one line:

- ``S t queue body`` and ``E t queue body``: the handling of a message began, ended
- ``Q t queue,queue,…``: the queues that it holds
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

import evenq
from evenq.client.group import held

# how often a member notes the queues that it holds
NOTES_PER_S = 20
# Most messages take no time. Two members that have a queue at a time are seen by those that take some.
SHORT_S, LONG_S, LONG_SHARE = 0.004, 0.15, 0.03


def note_queues(notes: TextIO, consumer: evenq.PushConsumer | evenq.LitePullConsumer, stop: threading.Event) -> None:
    while not stop.wait(1 / NOTES_PER_S):
        queues = ",".join(f"{queue.broker}-{queue.queue_id}" for queue in consumer.queues)
        notes.write(f"Q {time.monotonic()} {queues}\n")


def main(namesrv: str, group: str, topic: str, strategy: str, kind: str, name: str, path: str, lease: str) -> None:
    held.LEASE_VALID_S = float(lease)
    intervals = evenq.Intervals(renew_locks=held.LEASE_VALID_S / 3, heartbeat=held.LEASE_VALID_S / 2)
    logging.basicConfig(
        filename=f"{path}.log", level=logging.INFO, format="%(created)f %(levelname)s %(name)s %(message)s"
    )
    logging.Formatter.converter = time.gmtime
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    with Path(path).open("a", buffering=1) as notes:

        def handle(messages: list[evenq.MessageView]) -> None:
            for message in messages:
                what = f"{message.queue.broker}-{message.queue.queue_id} {message.body.decode()}"
                notes.write(f"S {time.monotonic()} {what}\n")
                time.sleep(random.uniform(0, LONG_S if random.random() < LONG_SHARE else SHORT_S))
                notes.write(f"E {time.monotonic()} {what}\n")

        consumer: evenq.PushConsumer | evenq.LitePullConsumer
        if kind == "lite":
            with evenq.LitePullConsumer(
                namesrv, group, strategy=strategy, instance=name, begin="first", intervals=intervals
            ) as consumer:
                consumer.subscribe(topic)
                threading.Thread(target=note_queues, args=(notes, consumer, stop), daemon=True).start()
                while not stop.is_set():
                    handle(consumer.poll(timeout=0.2, limit=16))
        else:
            with evenq.PushConsumer(
                namesrv, group, strategy=strategy, instance=name, begin="first", intervals=intervals, concurrency=4
            ) as consumer:
                consumer.subscribe(topic)
                consumer.start(handle, orderly=kind == "orderly")
                threading.Thread(target=note_queues, args=(notes, consumer, stop), daemon=True).start()
                while not stop.wait(0.5):
                    pass


if __name__ == "__main__":
    main(*sys.argv[1:])
