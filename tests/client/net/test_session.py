"""A session leaves when its brokers know all that it told them before."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from evenq.client.net.remote import Remote
from evenq.client.net.session import Session
from evenq.errors import ConnectError
from evenq.protocol.bodies import Heartbeat


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
