"""One member of a group as a process of its own: consumes with a listener of some milliseconds, notes what and when.

``python -m bench.member NAMESRV GROUP TOPIC INSTANCE STRATEGY LISTENER_SECONDS FILE``; it joins the group when a line
comes in, and SIGTERM ends it properly.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

import evenq

__all__ = ["main"]


def main() -> None:
    namesrv, group, topic, instance, strategy, pause, path = sys.argv[1:]
    with Path(path).open("a", buffering=1) as notes:

        def handler(messages: list[evenq.MessageView]) -> None:
            for message in messages:
                began = time.time()
                time.sleep(float(pause))
                notes.write(f"{began:.6f} {message.queue.broker} {message.queue_id} {message.body.decode()}\n")

        def stop(number: int, frame: FrameType | None) -> None:
            consumer.stop()

        consumer = evenq.PushConsumer(namesrv, group, strategy=strategy, instance=instance, begin="first")
        signal.signal(signal.SIGTERM, stop)
        consumer.subscribe(topic)
        print("ready", flush=True)
        if sys.stdin.readline():
            consumer.run(handler)


if __name__ == "__main__":
    main()
