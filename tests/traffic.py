"""A producer that sends all the time while a test changes other things."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from evenq import Message, Producer
from tests.waiting import wait_until

__all__ = ["Traffic"]


class Traffic:
    """Sends numbered messages to a topic until the block ends; ``sent`` are their bodies so far.

    ::

        with Traffic(namesrv, topic) as traffic:
            change_something()
            traffic.flow(50)        # and wait for 50 messages more
        assert consumed == traffic.sent
    """

    def __init__(self, namesrv: str, topic: str, pause: float = 0.001) -> None:
        self._namesrv, self._topic, self._pause = namesrv, topic, pause
        self.sent: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: Exception | None = None

    def flow(self, count: int) -> None:
        """Wait until so many more have been sent."""
        enough = len(self.sent) + count
        wait_until(lambda: len(self.sent) >= enough or self._failure, f"{count} more messages sent")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with Producer(self._namesrv) as producer:
                while not self._stop.wait(self._pause):
                    body = b"m-%d" % len(self.sent)
                    assert producer.send(Message(self._topic, body)).ok
                    self.sent.append(body)
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the test
            self._failure = error
