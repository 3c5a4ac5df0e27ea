"""The orders of the demo: sent at a steady rate until told to stop, and what the brokers confirmed."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

import evenq

__all__ = ["Orders"]

# Seconds to wait for the last confirmations.
PATIENCE = 30.0


class Orders:
    """A thread that sends. Each order has a key of its own, and round robin finds its queue."""

    def __init__(self, namesrv: str, topic: str, rate: int) -> None:
        self._namesrv, self._topic, self._rate = namesrv, topic, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evenq-demo-orders", daemon=True)
        self._futures: list[tuple[str, Future[evenq.SendResult]]] = []
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait until all that was sent is confirmed or given up."""
        self._stop.set()
        self._thread.join()

    def confirmed(self) -> list[str]:
        """The keys of what brokers have confirmed."""
        return [key for key, future in self._futures if future.done() and future.exception() is None]

    def failed(self) -> dict[str, str]:
        """Key → why; whether a broker has stored it all the same is not known."""
        done = [(key, future.exception()) for key, future in self._futures if future.done()]
        return {key: str(error) for key, error in done if error is not None}

    def save(self, path: Path) -> None:
        """A line for each: its key, and where it was stored or why not."""
        with path.open("w") as file:
            for key, future in self._futures:
                error = future.exception() if future.done() else TimeoutError("no answer")
                if error is None:
                    receipt = future.result()
                    place = {"broker": receipt.queue.broker, "queue_id": receipt.queue.queue_id}
                    line: dict[str, object] = {"key": key, **place, "offset": receipt.offset}
                else:
                    line = {"key": key, "error": str(error)}
                file.write(json.dumps(line) + "\n")

    def _run(self) -> None:
        with evenq.Producer(self._namesrv, group="shop") as producer:
            began = time.monotonic()
            while not self._stop.wait(max(0.0, began + self.sent / self._rate - time.monotonic())):
                key = f"o-{self.sent}"
                body = json.dumps({"order": self.sent, "customer": f"c-{self.sent % 89}", "total": self.sent % 97})
                message = evenq.Message(self._topic, body.encode(), keys=[key], tags="paid")
                self._futures.append((key, producer.send_async(message)))
                self.sent += 1
            deadline = time.monotonic() + PATIENCE
            while not all(future.done() for _, future in self._futures) and time.monotonic() < deadline:
                time.sleep(0.02)
