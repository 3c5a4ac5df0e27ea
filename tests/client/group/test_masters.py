"""A broker whose master is away: members that lock at its slave soon find the master again."""

from __future__ import annotations

import asyncio
from typing import cast

from evenq.client.group.member import look_for_masters
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
        await look_for_masters(routes)
        assert len(server.asked) == 1, "one route of the broker without a master"
        assert routes.first_replica_of("broker-a") == "slave-a"
        server.away = True
        await look_for_masters(routes)
        server.away, server.replicas = False, {0: "master-a", 1: "slave-a"}
        await look_for_masters(routes)
        assert routes.first_replica_of("broker-a") == "master-a"
        server.asked.clear()
        await look_for_masters(routes)
        assert server.asked == []

    asyncio.run(scenario())
