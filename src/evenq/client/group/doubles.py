"""Noticing that another member goes by the same client id.

Brokers list such members once, so both would compute the same share and consume it twice, and a lock that one of them
takes is the other's too. But a broker also lists connections, and there each has its own address.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import chain, repeat

from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.protocol.bodies import GroupConnections

__all__ = ["DoubleWatch", "addresses_of"]

log = logging.getLogger(__name__)

# Seconds after joining at which to look for the first times; after that, with every heartbeat.
FIRST_LOOKS = (0.5, 1.0)


def addresses_of(connected: GroupConnections, client_id: str) -> frozenset[str]:
    """Where members with this id are."""
    return frozenset(each.client_addr for each in connected.connection_set if each.client_id == client_id)


class DoubleWatch:
    """Looks after the client id of one member."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        # what was there at the last look, by broker: a connection that just broke may be listed for a moment longer
        self._before: dict[str, frozenset[str]] = {}
        # addresses of others that were reported
        self.found: set[str] = set()

    async def watch(self) -> None:
        """For ever."""
        pauses = chain(FIRST_LOOKS, repeat(self._session.intervals.heartbeat))

        async def step() -> None:
            await asyncio.sleep(next(pauses))
            await self.look()

        await self._session.repeat(step, f"search for members of group {self._group} with the same client id")

    async def look(self) -> None:
        """Ask every broker who has our id, and report whoever had it the last time too."""
        for address in sorted(set(self._session.routes.masters().values())):
            try:
                connected = await self._session.remote.connected(address, self._group)
            except RemoteError as error:
                log.debug("%s does not tell the connections of %s: %s", address, self._group, error)
                continue
            found = addresses_of(connected, self._session.client_id) if connected is not None else frozenset()
            self._report(address, found & self._before.get(address, frozenset()))
            self._before[address] = found

    def _report(self, address: str, stayed: frozenset[str]) -> None:
        connection = self._session.connections.live(address)
        ours = connection.local_address if connection is not None else ""
        others = stayed - {ours}
        # behind a translator of addresses no listed one is ours: then one of them is, and there must be two
        if len(stayed) < 2 or others <= self.found:
            return
        self.found |= others
        log.error(
            "client id %s is used by more than one member of group %s: at %s (this one) and at %s. They get the same "
            "queues, and messages come twice: give each member an instance name of its own",
            self._session.client_id, self._group, ours, ", ".join(sorted(others)),
        )  # fmt: skip
