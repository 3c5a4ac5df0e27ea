"""Administration: what operators do with topics. asyncio; the sync one is a facade on it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from evenq.client.session import Session
from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError

__all__ = ["Admin"]


class Admin:
    """Asks and changes a whole cluster: every master that the name server knows."""

    def __init__(self, namesrv: str, *, timeouts: Timeouts | None = None) -> None:
        self._session = Session(namesrv, timeouts=timeouts)

    async def create_topic(self, topic: str, *, queues: int = 8) -> None:
        """Make the topic on every master, with ``queues`` queues to read and write on each; or change it to that."""
        if queues < 1:
            raise ArgumentError("queues", queues, "give at least 1 queue per broker")
        masters = await self.masters()
        await asyncio.gather(*(self._session.remote.create_topic(at, topic, queues) for at in masters.values()))

    async def masters(self) -> dict[str, str]:
        """Broker name -> address of its master."""
        info = await self._session.name_servers.cluster()
        return {name: data.master for name, data in sorted(info.broker_addr_table.items()) if data.master}

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
