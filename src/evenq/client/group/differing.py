"""Noticing that members of a group do not subscribe alike, or divide queues by different rules.

A broker merges the subscriptions of a group into one, so the members are asked one by one, through a broker.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable

from evenq.client.agreement import Told, differences
from evenq.client.net.remote import together
from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.model import java_order
from evenq.protocol.bodies import RunningInfo
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import RunningInfoRequest

__all__ = ["DifferenceWatch", "ask_members"]

log = logging.getLogger(__name__)

# Seconds from a change in the group to the look, so that whatever else changes is seen by the same one; and between
# two looks at least.
SETTLING_S = 2.0
PAUSE_S = 10.0
# A member asks so many others, those that follow it in the list. When members differ, two neighbours do.
ASKED = 8


class DifferenceWatch:
    """Compares one member with others. A difference is legal while a group is being changed, so it is only logged."""

    def __init__(self, session: Session, group: str, info: Callable[[], RunningInfo]) -> None:
        self._session = session
        self._group = group
        self._info = info
        self._due = asyncio.Event()
        # the differences of the last look
        self.found: set[tuple[str, ...]] = set()

    def soon(self) -> None:
        """Members or subscriptions may have changed."""
        self._due.set()

    async def watch(self) -> None:
        """For ever."""
        self.soon()

        async def step() -> None:
            await self._due.wait()
            await asyncio.sleep(SETTLING_S)
            self._due.clear()
            await self.look()
            await asyncio.sleep(PAUSE_S - SETTLING_S)

        await self._session.repeat(step, f"comparison of the members of group {self._group}")

    async def look(self) -> None:
        """Ask others, and report what was not there the last time."""
        others = await self._others()
        answers = await asyncio.gather(*(self._ask(member, address) for member, address in others))
        told = [Told.by(self._session.client_id, self._info()), *(answer for answer in answers if answer is not None)]
        found = differences(told)
        for each in found:
            if each.key not in self.found:
                log.warning(
                    "members of group %s differ in %s. Queues may be read by nobody or twice, and messages be lost: "
                    "give all members the same subscriptions and settings", self._group, each
                )  # fmt: skip
        self.found = {each.key for each in found}

    async def _others(self) -> list[tuple[str, str]]:
        """The members to ask, each with a broker that knows it."""
        known, _ = await _others(self._session, self._group)
        ring = sorted(known, key=java_order)
        start = bisect_right(ring, java_order(self._session.client_id), key=java_order)
        return [(member, known[member]) for member in (ring[start:] + ring[:start])[:ASKED]]

    async def _ask(self, member: str, address: str) -> Told | None:
        info = await _ask(self._session, self._group, member, address)
        return None if info is None else Told.by(member, info)


async def ask_members(session: Session, group: str) -> dict[str, RunningInfo | None] | None:
    """What every other member says of itself, None for those that do not answer. None where it is not certain that
    these are all."""
    known, complete = await _others(session, group)
    if not complete:
        return None
    infos = await together(*(_ask(session, group, member, address) for member, address in known.items()))
    return dict(zip(known, infos, strict=True))


async def _others(session: Session, group: str) -> tuple[dict[str, str], bool]:
    """The other members, each with a broker that knows it, a master if there is one; and whether these are all.

    Slaves are asked like masters, since without its master a broker's slave alone knows who is there. A broker that
    does not answer, or does not know this member, may not know of others either.
    """
    masters = set(session.routes.masters().values())
    addresses = sorted(session.routes.all_addresses(), key=lambda address: (address not in masters, address))
    answers = await asyncio.gather(*(_members_at(session, group, address) for address in addresses))
    known: dict[str, str] = {}
    for address, members in zip(addresses, answers, strict=True):
        for member in members:
            known.setdefault(member, address)
    known.pop(session.client_id, None)
    return known, bool(answers) and all(session.client_id in members for members in answers)


async def _members_at(session: Session, group: str, address: str) -> set[str]:
    """The members that one broker knows; none where it does not answer."""
    try:
        connected = await session.remote.connected(address, group)
    except RemoteError as error:
        log.debug("%s does not tell the connections of %s: %s", address, group, error)
        return set()
    return {each.client_id for each in connected.connection_set} if connected is not None else set()


async def _ask(session: Session, group: str, member: str, address: str) -> RunningInfo | None:
    header = RunningInfoRequest(consumer_group=group, client_id=member)
    try:
        answer = await session.remote.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return RunningInfo.decode(answer.body)
    except RemoteError as error:
        log.debug("member %s of group %s does not tell its settings: %s", member, group, error)
        return None
