"""The ground that all parts of the admin client stand on: whom to ask, and what it means when one does not answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from evenq.client.closing import Closing
from evenq.client.net.acl import Credentials
from evenq.client.net.remote import together
from evenq.client.net.session import Session
from evenq.client.net.tls import TlsLike
from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError, ConnectError
from evenq.model import MessageQueue, from_millis
from evenq.protocol.bodies import ClusterInfo
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.headers import Header
from evenq.protocol.names import without_namespace

__all__ = ["Administration", "is_system_group", "milliseconds", "moment", "together"]

T = TypeVar("T")

# The groups that every broker has from the start, and Java's tools while they run.
_SYSTEM_GROUPS = frozenset(
    "DEFAULT_CONSUMER TOOLS_CONSUMER SCHEDULE_CONSUMER FILTERSRV_CONSUMER __MONITOR_CONSUMER SELF_TEST_C_GROUP "
    "CID_ONS-HTTP-PROXY CID_ONSAPI_PERMISSION CID_ONSAPI_OWNER CID_ONSAPI_PULL".split()
)
_SYSTEM_GROUPS_PREFIX = "CID_RMQ_SYS_"


def is_system_group(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUPS_PREFIX)


def moment(milliseconds: int) -> datetime | None:
    """A time as brokers tell it; 0 and below mean never."""
    return from_millis(milliseconds) if milliseconds > 0 else None


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
        namespace: str = "",
        credentials: Credentials | None = None,
        tls: TlsLike = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._session = Session(namesrv, credentials=credentials, tls=tls, timeouts=timeouts, namespace=namespace)
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

    # Whatever goes to a broker goes through `_wire`, which leaves a name that has its namespace as it is; whatever a
    # broker tells goes through `_own` before it is given to the caller.

    def _wire(self, name: str) -> str:
        """A topic or group as brokers know it. RocketMQ's own are in no namespace."""
        return name if is_system_group(name) else self._session.wire_name(name)

    def _own(self, name: str) -> str:
        """The inverse; a name of another namespace, or of none, stays as it is."""
        return without_namespace(self._session.namespace, name)

    def _is_ours(self, name: str) -> bool:
        """Whether a topic or group that a broker names belongs to the namespace: it has another name without it."""
        return not self._session.namespace or self._own(name) != name

    def _wire_queue(self, queue: MessageQueue) -> MessageQueue:
        return msgspec.structs.replace(queue, topic=self._wire(queue.topic))

    def _own_queue(self, queue: MessageQueue) -> MessageQueue:
        return msgspec.structs.replace(queue, topic=self._own(queue.topic))

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
