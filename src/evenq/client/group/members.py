"""Who is in the group: asked of every broker that has the subscribed topics, used when they agree."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import chain

from evenq.client.net.remote import Remote
from evenq.errors import RemoteError
from evenq.model import java_order
from evenq.supervision import Outages

__all__ = ["Members"]

log = logging.getLogger(__name__)

# A member that comes or goes tells the brokers one after the other; they agree again after a few milliseconds.
PATIENCE = 5
PAUSE = 0.1
# What the connections of evenq members say of themselves; the C++ library for Python says CPP.
LANGUAGE = "PYTHON"


class Members:
    """The member list of one group.

    Brokers are given by name, each by the addresses of its replicas, the master's first. Slaves are asked like masters:
    when a master is back, members that have not found it again yet are known to its slave alone.
    """

    def __init__(self, remote: Remote, group: str, outages: Outages | None = None) -> None:
        self._remote = remote
        self._group = group
        self._outages = outages or Outages()
        # the addresses that answered the last time
        self.answered: set[str] = set()

    async def ask(self, brokers: Mapping[str, Sequence[str]]) -> list[str] | None:
        """The members in Java's order, or None when no broker answers.

        Brokers that differ are asked again, for half a second at most; then whoever is known to one of them counts.
        A broker that does not answer has no say.
        """
        addresses = sorted(set(chain.from_iterable(brokers.values())))
        answers: list[frozenset[str]] = []
        for _ in range(PATIENCE):
            replies = await asyncio.gather(*map(self._ask_one, addresses))
            told = {address: reply for address, reply in zip(addresses, replies, strict=True) if reply is not None}
            self.answered, answers = set(told), list(told.values())
            if len(set(answers)) <= 1:
                break
            await asyncio.sleep(PAUSE)
        else:
            log.info("the brokers differ on the members of %s; taking all %s", self._group, [*map(sorted, answers)])
        if not answers:
            return None
        return sorted(frozenset().union(*answers), key=java_order)

    async def has_strangers(self, brokers: Mapping[str, Sequence[str]]) -> bool:
        """Whether somebody in the group is no evenq member, and so takes no hand-over locks.

        The first broker that knows the group tells, masters before slaves; where none does, it is taken to be so,
        which is the safe side.
        """
        ranked = {(rank, address) for replicas in brokers.values() for rank, address in enumerate(replicas)}
        for _, address in sorted(ranked):
            name = f"question to {address} for the connections of group {self._group}"
            try:
                connected = await self._remote.connected(address, self._group)
            except RemoteError as error:
                self._outages.failed(name, error)
                continue
            self._outages.ended(name)
            if connected is not None:
                return any(member.language != LANGUAGE for member in connected.connection_set)
        return True

    async def _ask_one(self, address: str) -> frozenset[str] | None:
        name = f"question to {address} for the members of group {self._group}"
        try:
            members = frozenset(await self._remote.members(address, self._group))
        except RemoteError as error:
            self._outages.failed(name, error)
            return None
        self._outages.ended(name)
        return members
