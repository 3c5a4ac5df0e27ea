"""The ground that all parts of the admin client stand on: whom to ask, and what it means when one does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TypeVar

from evenq.client.closing import Closing
from evenq.client.net.acl import Credentials
from evenq.client.net.session import Session
from evenq.client.net.tls import TlsLike
from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError, ConnectError
from evenq.protocol.bodies import ClusterInfo
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.headers import Header

__all__ = ["Administration", "milliseconds", "moment", "together"]

T = TypeVar("T")


async def together(*work: Awaitable[T]) -> list[T]:
    """Do it all at once and wait for every end; then the first failure, if there was one, is raised.

    Nothing is left running: what half of the brokers did is done when the error of the others is seen.
    """
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


def moment(milliseconds: int) -> datetime | None:
    """A time as brokers tell it; 0 and below mean never."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds > 0 else None


def milliseconds(argument: str, time: datetime) -> int:
    """A time as brokers are told it."""
    if time.tzinfo is None:
        raise ArgumentError(argument, time, "give a datetime with a time zone, e.g. datetime.now(UTC)")
    return round(time.timestamp() * 1000)


class Administration:
    """One session, and questions to many servers at once."""

    def __init__(
        self,
        namesrv: str,
        *,
        credentials: Credentials | None = None,
        tls: TlsLike = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._session = Session(namesrv, credentials=credentials, tls=tls, timeouts=timeouts)
        self._closing = Closing()

    async def masters(self) -> dict[str, str]:
        """Broker name -> address of its master."""
        info = await self._cluster_info()
        return {name: data.master for name, data in sorted(info.broker_addr_table.items()) if data.master}

    async def close(self) -> None:
        await self._closing.run(self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _cluster_info(self) -> ClusterInfo:
        self._session.check_open("admin client")
        return await self._session.name_servers.cluster()

    async def _chosen(self, brokers: Collection[str] | None = None) -> dict[str, str]:
        """The masters of these brokers, or of all. There is at least one."""
        masters = await self.masters()
        if not masters:
            namesrv = ";".join(self._session.name_servers.addresses)
            raise ConnectError(namesrv, "this name server knows no broker: start one, or look at its name server list")
        if brokers is None:
            return masters
        for name in brokers:
            if name not in masters:
                raise ArgumentError("brokers", name, f"there is no such broker; give some of {', '.join(masters)}")
        if not brokers:
            raise ArgumentError("brokers", brokers, f"give some of {', '.join(masters)}, or None for all")
        return {name: masters[name] for name in sorted(brokers)}

    async def _ask(self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
        self._session.check_open("admin client")
        return await self._session.remote.ask(address, code, header, body)

    async def _ask_each(
        self, addresses: Mapping[str, str], code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> dict[str, Command]:
        """The same question to each address; the answers come under the same names."""
        answers = await together(*(self._ask(address, code, header, body) for address in addresses.values()))
        return dict(zip(addresses, answers, strict=True))

    async def _tell_name_servers(self, code: RequestCode, header: Header) -> list[Command]:
        """A change that every name server must make: they do not talk to each other."""
        return await together(*(self._ask(address, code, header) for address in self._session.name_servers.addresses))
