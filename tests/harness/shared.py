"""One real RocketMQ cluster for all workers of a run.

The process that controls the workers starts it when the first worker asks, and stops it when the run ends. Workers ask
over a local socket, whose address is in their ``workerinput``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import NoReturn

from tests.realmq import RealCluster, Unavailable
from tests.realmq.cluster import LASTING

__all__ = ["ClusterShare", "SharedCluster", "ask_for_cluster"]


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """A running cluster that belongs to the whole run: nobody may stop its brokers."""

    namesrv: str
    brokers: Mapping[str, str]

    def stop_broker(self, name: str) -> NoReturn:
        raise RuntimeError(f"{name} belongs to a cluster that all tests share: start a RealCluster of your own")

    def start_broker(self, name: str) -> NoReturn:
        self.stop_broker(name)


class ClusterShare:
    """The controlling process's side: answers each question with the cluster, or with why there is none."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._listener = Listener(authkey=self._key)
        self._lock = threading.Lock()
        self._answer: SharedCluster | RuntimeError | str | None = None
        self._cluster: RealCluster | None = None
        threading.Thread(target=self._serve, name="shared-cluster", daemon=True).start()

    @property
    def address(self) -> tuple[str, str]:
        """What a worker needs for :func:`ask_for_cluster`; two strings, since xdist passes on plain values only."""
        return str(self._listener.address), self._key.hex()

    def close(self) -> None:
        with self._lock:
            self._listener.close()
            if self._cluster is not None:
                self._cluster.close()

    def _serve(self) -> None:
        # the listener is closed under a thread that waits for the next connection
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._reply, args=(connection,), daemon=True).start()

    def _reply(self, connection: Connection) -> None:
        with connection, self._lock:
            if self._answer is None:
                self._answer = self._start()
            connection.send(self._answer)

    def _start(self) -> SharedCluster | RuntimeError | str:
        """The cluster, or what went wrong, or the reason why RocketMQ cannot run on this machine."""
        try:
            self._cluster = RealCluster(conf=LASTING)
            self._cluster.start()
        except Unavailable as reason:
            return str(reason)
        except Exception:  # noqa: BLE001 - raised again in every worker that asks
            if self._cluster is not None:
                self._cluster.close()
            return RuntimeError(f"the shared cluster did not start:\n{traceback.format_exc()}")
        return SharedCluster(self._cluster.namesrv, self._cluster.brokers)


def ask_for_cluster(address: tuple[str, str]) -> SharedCluster:
    """A worker's side. Raises :class:`Unavailable` where the real RocketMQ cannot run."""
    place, key = address
    with Client(place, authkey=bytes.fromhex(key)) as connection:
        answer = connection.recv()
    if isinstance(answer, RuntimeError):
        raise answer
    if not isinstance(answer, SharedCluster):
        raise Unavailable(answer)
    return answer
