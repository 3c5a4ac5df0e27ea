"""Where to begin in many queues at once: few questions, and beside Java members patience."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from evenq.client.group.starting import StartingPoint
from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.protocol.bodies import OffsetPair

__all__ = ["Start", "Starts"]

log = logging.getLogger(__name__)

# From so many queues of a topic on one broker on, one question for all of them is cheaper.
MANY = 3

# The offset of a queue that a Java member may have had is read again after each pause, until it was the same so many
# times in a row: such a member commits what it drops at once, but does not wait for that.
STILL_PAUSE = 0.1
STILL_ENOUGH = 3
STILL_LIMIT = 30


@dataclass(frozen=True, slots=True)
class Start:
    """The first offset to read, and whether the broker has it stored for the group."""

    offset: int
    is_stored: bool


class Starts:
    """Finds where one group begins. The locks of the queues must be ours: an answer holds only as long as they do."""

    def __init__(self, session: Session, group: str, point: StartingPoint) -> None:
        self._session = session
        self._group = group
        self._point = point

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        """By queue; one whose broker does not answer now is left out.

        ``until_still``: members who take no hand-over locks are in the group, so wait until they commit no more.
        """
        by_place: defaultdict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_place[queue.broker, queue.topic].append(queue)
        found: dict[MessageQueue, Start] = {}
        for part in await asyncio.gather(*map(self._find_together, by_place.values())):
            found |= part
        if until_still:
            found = dict(await asyncio.gather(*(self._still(queue, start) for queue, start in found.items())))
        return found

    async def _find_together(self, queues: list[MessageQueue]) -> dict[MessageQueue, Start]:
        """The starts in queues of one topic on one broker."""
        known = await self._stats(queues[0]) if len(queues) >= MANY else {}
        found = {queue: start for queue in queues if (start := _certain(known.get(queue))) is not None}
        rest = [queue for queue in queues if queue not in found]
        asked = zip(rest, await asyncio.gather(*map(self._find_one, rest)), strict=True)
        return found | {queue: start for queue, start in asked if start is not None}

    async def _stats(self, queue: MessageQueue) -> Mapping[MessageQueue, OffsetPair]:
        try:
            address = self._session.routes.address_of(queue)
            return await self._session.remote.progress(address, self._group, queue.topic)
        except RemoteError as error:
            log.debug("the offsets of %s on %s cannot be had together: %s", queue.topic, queue.broker, error)
            return {}

    async def _find_one(self, queue: MessageQueue) -> Start | None:
        name = f"question where to begin in {queue}"
        try:
            address = self._session.routes.address_of(queue)
            start = Start(*await self._point.find(self._session.remote, address, self._group, queue))
        except RemoteError as error:
            self._session.outages.failed(name, error)
            return None
        self._session.outages.ended(name)
        return start

    async def _still(self, queue: MessageQueue, start: Start) -> tuple[MessageQueue, Start]:
        still = 0
        for _ in range(STILL_LIMIT):
            await asyncio.sleep(STILL_PAUSE)
            try:
                address = self._session.routes.address_of(queue)
                stored = await self._session.remote.stored_offset(address, self._group, queue)
            except RemoteError as error:
                log.warning("whether the offset of %s stands still is not known: %s", queue, error)
                break
            if stored is None or stored == start.offset:
                still += 1
            else:
                start, still = Start(stored, True), 0
            if still == STILL_ENOUGH:
                break
        return queue, start


def _certain(pair: OffsetPair | None) -> Start | None:
    """What the question for all says of one queue: 0 may mean that nothing is stored, unless the queue is empty."""
    if pair is None or (pair.consumer_offset <= 0 and pair.broker_offset > 0):
        return None
    return Start(max(0, pair.consumer_offset), pair.consumer_offset > 0)
