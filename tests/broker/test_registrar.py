"""A broker and its name servers, of which some are not there, or not always."""

import asyncio
import time
from pathlib import Path

import pytest

from evenq.broker.broker import Broker, BrokerSettings
from evenq.broker.namesrv import NameServer

pytestmark = pytest.mark.live


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def started(nameserver: NameServer, port: int = 0) -> NameServer:
    await nameserver.start("127.0.0.1", port)
    return nameserver


def test_a_broker_registers_with_each_name_server_and_leaves_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        servers = [await started(NameServer()) for _ in range(2)]
        broker = Broker(BrokerSettings(), tmp_path, [server.address for server in servers])
        await broker.start("127.0.0.1", 0)
        for server in servers:
            data = server.routes.brokers()["broker-a"]
            assert data.master == broker.address
            assert "TBW102" in server.routes.topics()
        await broker.stop()
        for server in servers:
            assert server.routes.brokers() == {}
            await server.stop()

    asyncio.run(scenario())


def test_a_missing_name_server_is_no_obstacle_and_is_found_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        first = await started(NameServer())
        second = NameServer()
        address = second.server.bind("127.0.0.1", 0)
        await second.server.stop()
        broker = Broker(BrokerSettings(), tmp_path, [first.address, address])
        await broker.start("127.0.0.1", 0)
        assert "broker-a" in first.routes.brokers()
        late = await started(NameServer(), int(address.rpartition(":")[2]))
        await until(lambda: "broker-a" in late.routes.brokers())
        await broker.stop()
        await first.stop()
        await late.stop()

    asyncio.run(scenario())
    assert "Connect" in caplog.text or "refused" in caplog.text


def test_a_name_server_that_was_restarted_knows_the_broker_again(tmp_path: Path) -> None:
    now = [time.time()]

    async def scenario() -> None:
        server = await started(NameServer())
        port = int(server.address.rpartition(":")[2])
        broker = Broker(BrokerSettings(), tmp_path, [server.address], clock=lambda: now[0])
        await broker.start("127.0.0.1", 0)
        await server.stop()
        again = await started(NameServer(), port)
        now[0] += 31
        await until(lambda: "broker-a" in again.routes.brokers())
        await broker.stop()
        await again.stop()

    asyncio.run(scenario())
