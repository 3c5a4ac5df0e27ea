"""A name server and some brokers in one event loop: the embedded default."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from evenq.broker.broker import Broker, BrokerSettings
from evenq.broker.clocks import monotonic_beside
from evenq.broker.namesrv import NameServer
from evenq.errors import ArgumentError

__all__ = ["Cluster", "broker_names"]

log = logging.getLogger(__name__)

# What the Java broker leaves between the ports of two brokers on one machine; it uses neighbours of its own too.
_PORTS_APART = 10


def broker_names(count: int) -> list[str]:
    """The names of ``count`` brokers.

    >>> broker_names(2), broker_names(28)[-2:]
    (['broker-a', 'broker-b'], ['broker-aa', 'broker-ab'])
    """
    if count < 1:
        raise ArgumentError("brokers", count, "give at least 1")
    names = []
    for number in range(count):
        letters = chr(ord("a") + number % 26)
        while number >= 26:
            number = number // 26 - 1
            letters = chr(ord("a") + number % 26) + letters
        names.append(f"broker-{letters}")
    return names


class Cluster:
    """One name server, and brokers that share nothing but it. Each has a directory of its own under ``data``."""

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        host: str = "127.0.0.1",
        namesrv_port: int = 9876,
        broker_port: int = 10911,
        settings: BrokerSettings | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._data = data
        self._host = host
        self._namesrv_port = namesrv_port
        self._settings = settings or BrokerSettings()
        self._clock = clock
        self._monotonic = monotonic or monotonic_beside(clock)
        self._ports = {
            name: broker_port + _PORTS_APART * number if broker_port else 0
            for number, name in enumerate(broker_names(brokers))
        }
        self.nameserver = NameServer(clock=self._monotonic, limits=self._settings.limits)
        self.brokers: dict[str, Broker] = {}

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self.nameserver.address

    async def start(self) -> None:
        """Return when clients can connect. What was started before a failure is stopped again."""
        try:
            await self.nameserver.start(self._host, self._namesrv_port)
            for name in self._ports:
                await self.start_broker(name)
        except BaseException:
            await self.stop()
            raise

    async def start_broker(self, name: str) -> Broker:
        """Start a broker, for the first time or again: then on the port that it had."""
        if name not in self._ports:
            raise ArgumentError("name", name, f"the brokers are {', '.join(self._ports)}")
        if name in self.brokers:
            raise ArgumentError("name", name, "this broker is running")
        settings = replace(self._settings, name=name)
        broker = Broker(settings, self._data / name, [self.namesrv], clock=self._clock, monotonic=self._monotonic)
        await broker.start(self._host, self._ports[name])
        self._ports[name] = int(broker.address.rpartition(":")[2])
        self.brokers[name] = broker
        return broker

    async def stop_broker(self, name: str) -> None:
        broker = self.brokers.pop(name, None)
        if broker is None:
            raise ArgumentError("name", name, f"the brokers that run are {', '.join(self.brokers) or 'none'}")
        await broker.stop()

    async def stop(self) -> None:
        """Stop everything. A broker that fails to is logged, and the others are stopped."""
        for name in list(self.brokers):
            try:
                await self.stop_broker(name)
            except Exception:
                log.exception("%s did not stop as it should", name)
        await self.nameserver.stop()
