"""One consumer of the demo, in a process of its own, so that it can be killed for real.

``python -m evenq.cli.demo.member NAMESRV GROUP TOPIC NAME STRATEGY NOTES`` notes every message that it is done with in
the file NOTES, a line each, and leaves properly on SIGTERM or when its standard input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import evenq

__all__ = ["main"]

# What it takes to handle an order.
WORK = 0.002


def main(namesrv: str, group: str, topic: str, name: str, strategy: str, notes: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    # Ctrl-C is for the demo, which then ends its members
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def handler(messages: list[evenq.MessageView]) -> None:
        time.sleep(WORK)
        lines = [f"{one.keys[0]} {one.queue.broker} {one.queue.queue_id} {one.queue_offset}\n" for one in messages]
        # one call, straight to the system: a kill leaves whole lines
        os.write(file, "".join(lines).encode())

    def wait_for_parent() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    with evenq.PushConsumer(namesrv, group, strategy=strategy, instance=name, begin="first", trace=True) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        while not ended.wait(1.0):
            pass
    os.close(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
