"""The embedded cluster in a thread of its own, for tests that are not written with asyncio."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from evenq.broker import Broker, BrokerSettings, Cluster

__all__ = ["EmbeddedCluster", "cluster"]

T = TypeVar("T")


class EmbeddedCluster:
    """A running cluster. ``brokers`` are those that run now, by name; touch them through :meth:`call` only,
    except their ``faults``."""

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster = cluster
        self._loop = loop

    @property
    def namesrv(self) -> str:
        """The name server's address, ``host:port``."""
        return self._cluster.namesrv

    @property
    def brokers(self) -> dict[str, Broker]:
        return dict(self._cluster.brokers)

    def stop_broker(self, name: str) -> None:
        """Stop a broker; its data and its port stay for :meth:`start_broker`."""
        self._run(self._cluster.stop_broker(name))

    def start_broker(self, name: str) -> Broker:
        return self._run(self._cluster.start_broker(name))

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the cluster's own thread, where its tables may be looked at and changed."""

        async def called() -> T:
            return function()

        return self._run(called())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


@contextmanager
def cluster(
    brokers: int = 1,
    *,
    data: Path | str | None = None,
    settings: BrokerSettings | None = None,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] | None = None,
    namesrv_port: int = 0,
    broker_port: int = 0,
) -> Iterator[EmbeddedCluster]:
    """A name server and ``brokers`` brokers on free ports, in a thread, until the block ends.

    Without ``data`` everything is in a temporary directory that is removed. ``clock`` may be that of a
    :class:`~evenq.testing.Clock`; it then also measures how long things take, unless ``monotonic`` does.

    ::

        with evenq.testing.cluster(brokers=2) as cluster:
            producer = evenq.Producer(cluster.namesrv, group="shop")
    """
    with tempfile.TemporaryDirectory(prefix="evenq-", ignore_cleanup_errors=True) as temporary, _loop_thread() as loop:
        run = asyncio.run_coroutine_threadsafe
        made = Cluster(
            Path(temporary if data is None else data),
            brokers=brokers,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            settings=settings,
            clock=clock,
            monotonic=monotonic,
        )
        run(made.start(), loop).result()
        try:
            yield EmbeddedCluster(made, loop)
        finally:
            run(made.stop(), loop).result()


@contextmanager
def _loop_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="evenq-cluster", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
