"""Reading a held queue: pull, hand on, pull again, until the queue is let go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from evenq.client.holding import Holding
from evenq.client.pull import Pulled, pull, pull_command
from evenq.client.session import Session
from evenq.errors import ProtocolError, RemoteError
from evenq.model import MessageView
from evenq.protocol.bodies import Subscription
from evenq.protocol.filters import passes
from evenq.protocol.records import decode_messages

__all__ = ["QueueReader"]

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.1
LAST_PAUSE = 3.0


class QueueReader:
    """Reads held queues of one group. ``arrived`` is called when messages wait in a holding."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscription: Callable[[str], Subscription],
        arrived: Callable[[Holding], None],
        count: int,
    ) -> None:
        self._session = session
        self._group = group
        self._subscription = subscription
        self._arrived = arrived
        self._count = count

    async def read(self, holding: Holding) -> None:
        """Until the holding is dropped. A broker that fails is asked again, after a pause that grows."""
        pause = FIRST_PAUSE
        while not holding.dropped:
            await holding.room.wait()
            if holding.dropped:
                return
            try:
                came = await self._pull(holding)
                messages = decode_messages(came.body, broker=holding.queue.broker) if came.body else []
            except ProtocolError:
                log.exception(
                    "what was pulled from %s at %d cannot be read", holding.queue, holding.progress.next_offset
                )
            except RemoteError as error:
                log.warning("pull from %s: %s; again in %.1f s", holding.queue, error, pause)
            else:
                pause = FIRST_PAUSE
                if not holding.dropped:
                    self._accept(holding, came, messages)
                continue
            await asyncio.sleep(pause)
            pause = min(LAST_PAUSE, pause * 2)

    async def _pull(self, holding: Holding) -> Pulled:
        queue, timeouts = holding.queue, self._session.timeouts
        wanted = self._subscription(queue.topic)
        command = pull_command(
            self._group,
            queue,
            holding.progress.next_offset,
            count=self._count,
            hold=timeouts.hold,
            expression=wanted.sub_string,
            expression_type=wanted.expression_type,
        )
        address = self._session.routes.address_of(queue)
        return await pull(self._session.remote, address, command, timeouts.hold + timeouts.pull)

    def _accept(self, holding: Holding, came: Pulled, messages: list[MessageView]) -> None:
        if came.moved:
            log.warning(
                "%s has no offset %d (it holds %d to %d); going on at %d",
                holding.queue, holding.progress.next_offset, came.min_offset, came.max_offset, came.next_offset,
            )  # fmt: skip
            holding.jump(came.next_offset)
            return
        # The broker compares the tags' hashes only: what has another tag with the same hash is left out here.
        tags = self._subscription(holding.queue.topic).tags_set
        wanted = [message for message in messages if passes(tags, message.tags)]
        holding.add(wanted, came.next_offset)
        if wanted:
            self._arrived(holding)
