"""Brokers that are away, or whose masters are: members soon find them again."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from evenq.client.group.member import look_for_brokers
from evenq.client.net import routes as module
from evenq.client.net.routes import NameServers, Routes
from evenq.errors import ConnectError
from evenq.protocol.bodies import BrokerData, QueueData, TopicRoute


class NameServer:
    """Knows two brokers; one of them has a master only at times."""

    def __init__(self) -> None:
        self.replicas: dict[int, str] = {1: "slave-a"}
        self.away = False
        self.asked: list[str] = []

    async def route(self, topic: str) -> TopicRoute:
        self.asked.append(topic)
        if self.away:
            raise ConnectError("name server", "away")
        broker = "broker-b" if topic == "bills" else "broker-a"
        replicas = {0: "master-b"} if topic == "bills" else self.replicas
        return TopicRoute(
            broker_datas=[BrokerData(cluster="c", broker_name=broker, broker_addrs=replicas)],
            queue_datas=[QueueData(broker_name=broker, read_queue_nums=4, write_queue_nums=4, perm=6)],
        )


def test_a_master_that_is_back_is_found_without_waiting_for_routes() -> None:
    async def scenario() -> None:
        server = NameServer()
        routes = Routes(cast(NameServers, server))
        for topic in ("orders", "returns", "bills"):
            await routes.get(topic)
        server.asked.clear()
        await look_for_brokers(routes)
        assert len(server.asked) == 1, "one route of the broker without a master"
        assert routes.first_replica_of("broker-a") == "slave-a"
        server.away = True
        await look_for_brokers(routes)
        server.away, server.replicas = False, {0: "master-a", 1: "slave-a"}
        await look_for_brokers(routes)
        assert routes.first_replica_of("broker-a") == "master-a"
        server.asked.clear()
        await look_for_brokers(routes)
        assert server.asked == []

    asyncio.run(scenario())


def test_a_broker_that_is_back_is_found_without_waiting_for_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its route may have been asked for while it was away."""

    class Brokers:
        def __init__(self) -> None:
            self.names = ["broker-a", "broker-b"]
            self.asked = 0

        async def route(self, topic: str) -> TopicRoute:
            self.asked += 1
            return TopicRoute(
                broker_datas=[
                    BrokerData(cluster="c", broker_name=name, broker_addrs={0: f"{name}:1"}) for name in self.names
                ],
                queue_datas=[
                    QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6) for name in self.names
                ],
            )

    async def scenario() -> None:
        server = Brokers()
        routes = Routes(cast(NameServers, server))
        await routes.get("orders")
        await look_for_brokers(routes)
        assert server.asked == 1
        server.names = ["broker-a"]
        await routes.refresh("orders")
        await look_for_brokers(routes)
        assert server.asked == 3
        server.names = ["broker-a", "broker-b"]
        await look_for_brokers(routes)
        assert len((await routes.get("orders")).readable) == 2
        await look_for_brokers(routes)
        assert server.asked == 4
        # one that does not come back is given up
        monkeypatch.setattr(module, "SHRUNK_S", 0.0)
        server.names = ["broker-b"]
        await routes.refresh("orders")
        await look_for_brokers(routes)
        assert server.asked == 5

    asyncio.run(scenario())
