"""A real name server and real brokers on this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from evenq.broker.cluster import broker_names
from evenq.protocol import RequestCode
from evenq.protocol.bodies import ClusterInfo
from tests import clusters
from tests.realmq.jvm import Jvm
from tests.realmq.kit import find_kit
from tests.realmq.ports import BROKER, NAMESRV, free_ports
from tests.waiting import wait_until

__all__ = ["LASTING", "RealCluster"]

_BOOTED = "boot success"

_NAMESRV_HEAP = ["-Xmx128m"]
_BROKER_HEAP = ["-Xms512m", "-Xmx512m", "-Xmn256m", "-XX:MaxDirectMemorySize=512m"]

# What differs from RocketMQ's own settings, and why.
_BROKER_CONF = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    # SQL92 filters
    "enablePropertyFilter": "true",
    # timed messages may be taken back
    "recallMessageEnable": "true",
    # a full disk or a busy machine must not refuse messages: tests share both with others
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "3000",
    "osPageCacheBusyTimeOutMills": "5000",
    # both services burn a core or compare 20 MB once a second with their own settings, on an idle broker
    "transactionMetricFlushInterval": "500",
    "timerFlushIntervalMs": "5000",
}


# What a slave's settings add: it copies its master, and answers pulls.
_SLAVE_CONF = {"brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}

# For a cluster that nobody stops or kills before the end: its timer wheel need not be on disk. Comparing the wheel
# with its file takes half of the processor time of an idle broker.
LASTING = {"timerFlushIntervalMs": "600000"}


@dataclass(slots=True)
class _Broker:
    address: str
    settings: dict[str, str]
    jvm: Jvm | None = None


class RealCluster:
    """A name server and ``brokers`` brokers (``broker-a``, ``broker-b``, …) on free ports, ready to use.

    ::

        with RealCluster(brokers=2) as cluster:
            cluster.namesrv                     # "127.0.0.1:23456"
            cluster.kill_broker("broker-b")     # SIGKILL, felt at once
            cluster.start_broker("broker-b")    # same port, same data
            cluster.add_slave("broker-a")       # from now on there is a broker-a-slave, too

    Broker ``x`` keeps its store in ``data/x``; a given ``data`` folder stays when the cluster is closed, so a store
    can be handed on. ``conf`` adds to every broker's settings. ``quick=False`` runs the JVMs with their best compiler,
    for measurements. ``tls=True`` lets the servers take TLS too (they make up a certificate, which takes a second).
    """

    def __init__(
        self,
        brokers: int = 2,
        *,
        data: Path | None = None,
        conf: Mapping[str, str] | None = None,
        quick: bool = True,
        tls: bool = False,
    ) -> None:
        self._kit = find_kit()
        self._quick = quick
        self._tls = tls
        self._home = Path(tempfile.mkdtemp(prefix="evenq-realmq-"))
        self._namesrv: Jvm | None = None
        port, *ports = free_ports(NAMESRV, *[BROKER] * brokers)
        self._namesrv_port = port
        self.namesrv = f"127.0.0.1:{port}"
        self._data = data or self._home / "data"
        self._conf = conf or {}
        self._brokers: dict[str, _Broker] = {}
        for name, port in zip(broker_names(brokers), ports, strict=True):
            self._brokers[name] = self._configure(name, port, {"brokerName": name})

    @property
    def brokers(self) -> dict[str, str]:
        """The brokers that run now: their names and addresses."""
        return {
            name: broker.address
            for name, broker in self._brokers.items()
            if broker.jvm is not None and broker.jvm.running
        }

    @property
    def pids(self) -> list[int]:
        """The processes that run now, the name server first."""
        jvms = [self._namesrv, *(broker.jvm for broker in self._brokers.values())]
        return [jvm.pid for jvm in jvms if jvm is not None and jvm.running]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start everything and wait until each broker can be found through the name server."""
        settings = {"listenPort": str(self._namesrv_port), "bindAddress": "127.0.0.1"}
        self._namesrv = self._launch("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", settings, _NAMESRV_HEAP)
        # first alone: a broker that looks for it in vain looks again seconds later only
        self._namesrv.wait_for(_BOOTED, 60)
        for name in self._brokers:
            self._launch_broker(name)
        for name in self._brokers:
            self._wait_registered(name)

    def start_broker(self, name: str) -> None:
        """Start a broker that was stopped or killed, and wait until it can be found."""
        self._launch_broker(name)
        self._wait_registered(name)

    def add_slave(self, name: str) -> None:
        """Give a broker a slave, named ``broker-a-slave`` here, and wait until it can be found.

        It begins with the topics and groups that its master has now: by itself a slave asks for them a minute after its
        start, and for the offsets of groups, too. Messages it copies from the start.
        """
        [port] = free_ports(BROKER)
        slave = f"{name}-slave"
        config = self._data / slave / "config"
        config.mkdir(parents=True)
        for file in ("topics.json", "subscriptionGroup.json"):
            # not there where its broker has no group yet
            with suppress(FileNotFoundError):
                shutil.copy(self._data / name / "config" / file, config)
        self._brokers[slave] = self._configure(slave, port, {"brokerName": name, **_SLAVE_CONF})
        self.start_broker(slave)

    def stop_broker(self, name: str) -> None:
        """Let a broker shut down in good order: it unregisters, flushes and goes. RocketMQ takes some 15 s for that."""
        self._take_jvm(name).terminate()

    def kill_broker(self, name: str) -> None:
        """SIGKILL. The name server and the clients see its connections close at once."""
        self._take_jvm(name).kill()

    def close(self) -> None:
        """Kill what runs and remove its files. A store that is to be handed on is stopped, broker by broker, before."""
        for jvm in (self._namesrv, *(broker.jvm for broker in self._brokers.values())):
            if jvm is not None:
                jvm.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _configure(self, name: str, port: int, conf: Mapping[str, str]) -> _Broker:
        store = self._data / name
        settings = {
            **_BROKER_CONF,
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            **self._conf,
            **conf,
        }
        return _Broker(f"127.0.0.1:{port}", settings)

    def _launch_broker(self, name: str) -> None:
        broker = self._brokers[name]
        if broker.jvm is not None:
            raise RuntimeError(f"{name} has been started already: stop or kill it first")
        broker.jvm = self._launch(name, "org.apache.rocketmq.broker.BrokerStartup", broker.settings, _BROKER_HEAP)

    def _launch(self, name: str, main: str, settings: Mapping[str, str], heap: list[str]) -> Jvm:
        # written at every start: a broker writes all its settings into it when one of them is changed
        conf = self._home / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        # with TLS a server makes a key pair at every start, a second of a core each time
        mode = f"-Dtls.server.mode={'permissive' if self._tls else 'disabled'}"
        arguments = ["evenq.Leash", main, "-c", str(conf)]
        return Jvm(self._kit, self._home / name, arguments, heap=[*heap, mode], quick=self._quick)

    def _take_jvm(self, name: str) -> Jvm:
        broker = self._brokers[name]
        if broker.jvm is None:
            raise RuntimeError(f"{name} is not running: start it first")
        jvm, broker.jvm = broker.jvm, None
        return jvm

    def _wait_registered(self, name: str) -> None:
        broker = self._brokers[name]
        assert broker.jvm is not None
        broker.jvm.wait_for(_BOOTED, 60)
        wait_until(lambda: self._is_registered(name), f"{name} registered at the name server")

    def _is_registered(self, name: str) -> bool:
        """Whether the name server knows the broker. If not, it is made to register now.

        The first registration of a broker is lost when it has not found its name server reachable by then, and the
        next is due 10 s later; but one comes with every change of its permission, also with one from 6 to 6.
        """
        broker = self._brokers[name]
        if not self._is_known(broker):
            clusters.ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
        return self._is_known(broker)

    def _is_known(self, broker: _Broker) -> bool:
        info = ClusterInfo.decode(clusters.ask(self.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        data = info.broker_addr_table.get(broker.settings["brokerName"])
        return data is not None and broker.address in data.broker_addrs.values()
