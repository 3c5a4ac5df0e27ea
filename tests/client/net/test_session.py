"""A session leaves when its brokers know all that it told them before."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from evenq.balance import PublishRoute
from evenq.client.net.connection import Connection
from evenq.client.net.remote import Remote
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.errors import ConnectError
from evenq.protocol.bodies import ConsumerData, Heartbeat
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command


class Brokers:
    """What they were told, in the order in which they came to it."""

    def __init__(self, *, reachable: bool = True) -> None:
        self.told: list[str] = []
        self.busy = asyncio.Event()
        self._reachable = reachable

    async def heartbeat(self, address: str, data: Heartbeat) -> None:
        await self.busy.wait()
        if not self._reachable:
            raise ConnectError(address, "lost")
        self.told.append("alive")

    async def unregister(self, address: str, client_id: str, **groups: str | None) -> None:
        self.told.append("gone")


@pytest.mark.parametrize("reachable", [True, False])
def test_a_heartbeat_that_is_under_way_comes_before_the_end(reachable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        brokers = Brokers(reachable=reachable)
        session = Session("127.0.0.1:9876")
        session.remote = cast(Remote, brokers)
        session.producing("g")
        monkeypatch.setattr(session.routes, "masters", lambda: {"broker-a": "b:1"})
        monkeypatch.setattr(session.connections, "live", lambda address: SimpleNamespace())
        session.spawn(session.beat())
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0.01)
        assert brokers.told == []
        brokers.busy.set()
        await closing
        await session.beat()
        assert brokers.told == ["alive"] * reachable + ["gone"]

    asyncio.run(scenario())


class Told:
    """Brokers that note who has told them what."""

    def __init__(self) -> None:
        self.told: set[tuple[str, str]] = set()

    async def heartbeat(self, address: str, data: Heartbeat) -> None:
        self.told.add(("heartbeat", address))

    async def unregister(self, address: str, client_id: str, **groups: str | None) -> None:
        self.told.add(("end", address))

    def taken(self) -> set[tuple[str, str]]:
        told, self.told = self.told, set()
        return told


def route(**addresses: dict[int, str]) -> Route:
    return Route("t", PublishRoute.of(()), (), addresses)


@pytest.mark.parametrize("consumes", [True, False])
def test_slaves_hear_of_consumers_as_masters_do(consumes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        brokers = Told()
        session = Session("127.0.0.1:9876")
        session.remote = cast(Remote, brokers)
        session.producing("g")
        if consumes:
            session.consuming(lambda: ConsumerData(group_name="g"))
        monkeypatch.setattr(session.connections, "live", lambda address: SimpleNamespace())
        session.routes._keep(route(a={0: "a:1", 1: "a:2"}, b={1: "b:2"}))
        await session.beat()
        wanted = {"a:1", "a:2", "b:2"} if consumes else {"a:1"}
        assert brokers.taken() == {("heartbeat", address) for address in wanted}
        await session.close()
        assert brokers.taken() == {("end", address) for address in wanted}

    asyncio.run(scenario())


def test_a_broker_at_a_new_address_hears_of_us_at_once() -> None:
    async def scenario() -> None:
        brokers = Told()
        session = Session("127.0.0.1:9876")
        session.remote = cast(Remote, brokers)
        session.consuming(lambda: ConsumerData(group_name="g"))
        session.start()
        for changed in (route(a={0: "a:1"}), route(a={0: "a:1", 1: "a:2"}), route(a={0: "a:3", 1: "a:2"})):
            session.routes._keep(changed)
            async with asyncio.timeout(5):
                while brokers.told != {("heartbeat", address) for address in changed.all_addresses}:
                    await asyncio.sleep(0)
            brokers.taken()
        session.routes._keep(route(a={1: "a:2"}))
        await asyncio.sleep(0.01)
        assert brokers.taken() == set(), "nobody is new where one has gone"
        await session.close()

    asyncio.run(scenario())


def test_a_proxy_that_is_connected_anew_hears_of_us_at_once() -> None:
    async def scenario() -> None:
        brokers = Told()
        session = Session("127.0.0.1:8080;127.0.0.1:9876")
        session.remote = cast(Remote, brokers)
        session.producing("g")
        session.routes._keep(route(a={0: "127.0.0.1:8080"}))
        for address in session.name_servers.addresses:
            session._on_open(address)
        await asyncio.sleep(0.01)
        assert brokers.taken() == {("heartbeat", "127.0.0.1:8080")}
        await session.close()

    asyncio.run(scenario())


def test_a_periodic_task_goes_on_after_any_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        session = Session("127.0.0.1:9876")
        done = asyncio.Event()
        failures = [KeyError("on purpose")]

        async def work() -> None:
            if failures:
                raise failures.pop()
            done.set()

        session.spawn(session.every(0.001, work, "the work"))
        async with asyncio.timeout(5):
            await done.wait()
        await session.close()

    asyncio.run(scenario())
    assert "the work of client" in caplog.text
    assert "failed: KeyError: 'on purpose'" in caplog.text


def test_a_request_of_a_broker_is_answered_though_its_handler_raises() -> None:
    async def scenario() -> Command | None:
        session = Session("127.0.0.1:9876")

        async def answer(command: Command) -> Command | None:
            raise KeyError("on purpose")

        session.on(RequestCode.GET_CONSUMER_RUNNING_INFO, answer)
        request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO)
        return await session._on_request(cast(Connection, SimpleNamespace(address="b:1")), request)

    reply = asyncio.run(scenario())
    assert reply is not None
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "KeyError: 'on purpose'")
