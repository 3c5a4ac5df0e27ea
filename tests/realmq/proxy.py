"""RocketMQ's proxy in front of a cluster."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.realmq.jvm import Jvm
from tests.realmq.kit import find_proxy_kit
from tests.realmq.ports import NAMESRV, free_ports

__all__ = ["RealProxy"]


class RealProxy:
    """A proxy in cluster mode. To clients its ``address`` is name server and broker in one: it answers for routes with
    itself in the place of every broker, and passes requests on."""

    def __init__(self, namesrv: str) -> None:
        kit = find_proxy_kit()
        port, grpc_port = free_ports(NAMESRV, NAMESRV)
        self.address = f"127.0.0.1:{port}"
        self._home = Path(tempfile.mkdtemp(prefix="evenq-proxy-"))
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "localServeAddr": "127.0.0.1",
            "remotingListenPort": port,
            "grpcServerPort": grpc_port,
            # else it makes up a certificate
            "tlsTestModeEnable": True,
            # it remembers that a topic does not exist, a group's retry topic for example, for 20 s by itself
            "topicRouteServiceCacheRefreshSeconds": 1,
        }
        conf = self._home / "proxy.json"
        conf.write_text(json.dumps(settings))
        main = ["evenq.Leash", "org.apache.rocketmq.proxy.ProxyStartup"]
        arguments = [*main, "-n", namesrv, "-pm", "cluster", "-pc", str(conf)]
        self._jvm = Jvm(kit, self._home, arguments, heap=["-Xmx256m"], quick=True)

    def __enter__(self) -> Self:
        try:
            self._jvm.wait_for("startup successfully", 60)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._jvm.kill()
        shutil.rmtree(self._home, ignore_errors=True)
