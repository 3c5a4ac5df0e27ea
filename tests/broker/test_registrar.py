"""A broker and its name servers, of which some are not there, or not always."""

import asyncio
import time
from functools import wraps
from pathlib import Path

import pytest

from evenq.broker.broker import Broker, BrokerSettings
from evenq.broker.flusher import Flusher
from evenq.broker.namesrv import NameServer
from evenq.broker.registrar import Registrar
from evenq.broker.routes import RouteTable
from evenq.broker.state.locks import QueueLocks
from evenq.errors import ArgumentError
from evenq.protocol.command import Command

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


def test_a_broker_starts_though_it_cannot_register_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registration, failures = Registrar.registration, [KeyError("on purpose")]

    def registration_later(registrar: Registrar) -> Command:
        if failures:
            raise failures.pop()
        return registration(registrar)

    monkeypatch.setattr(Registrar, "registration", registration_later)

    async def scenario() -> None:
        server = await started(NameServer())
        broker = Broker(BrokerSettings(), tmp_path, [server.address])
        async with asyncio.timeout(10):
            await broker.start("127.0.0.1", 0)
        await until(lambda: "broker-a" in server.routes.brokers())
        await broker.stop()
        await server.stop()

    asyncio.run(scenario())
    assert "registering with name server 127.0.0.1:" in caplog.text


def test_the_housekeeping_of_a_broker_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @wraps(Flusher.checkpoint)
    def checkpoint(flusher: Flusher) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Flusher, "checkpoint", checkpoint)
    rounds = 0

    def expire(locks: QueueLocks) -> None:
        nonlocal rounds
        rounds += 1

    monkeypatch.setattr(QueueLocks, "expire", expire)

    async def scenario() -> None:
        broker = Broker(BrokerSettings(housekeeping_seconds=0.01), tmp_path, [])
        await broker.start("127.0.0.1", 0)
        await until(lambda: rounds >= 3)
        await broker.stop()

    asyncio.run(scenario())
    failed = [record for record in caplog.records if "Flusher.checkpoint" in record.getMessage()]
    assert len(failed) == 1
    assert "No space left on device" in failed[0].getMessage()


def test_the_housekeeping_of_a_name_server_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def expire(routes: RouteTable[object]) -> list[object]:
        nonlocal rounds
        rounds += 1
        raise KeyError("on purpose")

    monkeypatch.setattr(RouteTable, "expire", expire)

    async def scenario() -> None:
        server = await started(NameServer())
        await until(lambda: rounds >= 2)
        await server.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "address", ["nonsense", "host:", ":9876", "host:0", "host:99999", "::1:9876", "a b:1", "h:1_0"]
)
def test_a_malformed_address_is_an_error_at_once(tmp_path: Path, address: str) -> None:
    with pytest.raises(ArgumentError, match="give host:port"):
        Broker(BrokerSettings(), tmp_path, ["127.0.0.1:9876", address])


@pytest.mark.parametrize("address", ["127.0.0.1:9876", "[::1]:9876", "names.example:1"])
def test_addresses_have_a_host_and_a_port(tmp_path: Path, address: str) -> None:
    Broker(BrokerSettings(), tmp_path, [address])
