"""What becomes of messages that a handler was called with: consumed, given back for later, or given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from evenq.client.consume.calls import Calls
from evenq.client.consume.dispatch import Outcome, Retry, failures
from evenq.client.consume.holding import Holding
from evenq.client.group.shares import RETRY_PREFIX
from evenq.client.namespaces import Namespace
from evenq.client.net.session import Session
from evenq.errors import RemoteError
from evenq.model import MessageQueue, Property
from evenq.protocol.headers import SendBack
from evenq.protocol.view import MessageView

__all__ = ["BroadcastDelivery", "ConcurrentDelivery", "GiveBack", "OrderlyDelivery", "as_sent"]

log = logging.getLogger(__name__)

# Seconds before a message that the broker did not take back is offered to it again; then ever so often.
GIVE_BACK_PAUSES = (0.1, 0.5, 2.0, 5.0)
# A queue without a lock that counts is looked at again after so many seconds.
UNLOCKED_PAUSE = 0.1
NEVER = Retry(delay_level=-1)
NO_NAMESPACE = Namespace()


def as_sent(message: MessageView) -> MessageView:
    """A redelivered message under the topic that it was sent to."""
    topic = message.properties.get(Property.RETRY_TOPIC)
    return message if topic is None else msgspec.structs.replace(message, topic=topic)


def _shown(holding: Holding, batch: list[MessageView], namespace: Namespace) -> tuple[MessageQueue, list[MessageView]]:
    """The queue without the namespace, and the messages as the handler gets them: under the topic that they were sent
    to, without the namespace."""
    if holding.queue.topic.startswith(RETRY_PREFIX):
        batch = [as_sent(message) for message in batch]
    return namespace.unwrap_queue(holding.queue), namespace.unwrap_messages(batch)


class GiveBack:
    """Gives messages to the broker that they came from. It delivers them again later, or makes dead letters of them."""

    def __init__(self, session: Session, group: str, max_retries: int) -> None:
        self._session = session
        self._group = group
        self.max_retries = max_retries

    async def once(self, holding: Holding, message: MessageView, retry: Retry) -> None:
        header = SendBack(
            broker_name=holding.queue.broker,
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=retry.delay_level,
            origin_msg_id=message.properties.get(Property.ORIGIN_ID, message.msg_id),
            origin_topic=message.topic,
            max_reconsume_times=self.max_retries,
        )
        await self._session.remote.send_back(self._session.routes.address_of(holding.queue), header)

    async def until_taken(self, holding: Holding, message: MessageView, retry: Retry) -> bool:
        """Offer it until the broker takes it; False where the queue was dropped before."""
        tries, outages = 0, self._session.outages
        # one outage of a queue, however many of its messages wait for the end of it
        name = f"giving back messages of {holding.queue}"
        while True:
            try:
                await self.once(holding, message, retry)
            except Exception as error:
                if holding.dropped:
                    log.error("%s at %d stays unconsumed: %s", holding.queue, message.queue_offset, error)
                    return False
                pause = GIVE_BACK_PAUSES[min(tries, len(GIVE_BACK_PAUSES) - 1)]
                if isinstance(error, RemoteError):
                    outages.failed(name, error)
                elif not tries:
                    log.exception("%s does not take %d back", holding.queue, message.queue_offset)
            else:
                outages.ended(name)
                return True
            tries += 1
            await asyncio.sleep(pause)


class ConcurrentDelivery:
    """Messages of a queue side by side; what fails goes back to the broker."""

    in_order = False

    def __init__(
        self, session: Session, calls: Calls, give_back: GiveBack, namespace: Namespace = NO_NAMESPACE
    ) -> None:
        self._session = session
        self._namespace = namespace
        self._calls = calls
        self._give_back = give_back

    def ready(self, holding: Holding) -> float:
        return 0.0

    async def deliver(self, holding: Holding, batch: list[MessageView]) -> float:
        self.end(holding, batch, await self._calls.call(*_shown(holding, batch, self._namespace)))
        return 0.0

    def begin(self, holding: Holding, batch: list[MessageView], ended: Callable[[Outcome], None]) -> None:
        self._calls.begin(*_shown(holding, batch, self._namespace), ended)

    def end(self, holding: Holding, batch: list[MessageView], outcome: Outcome) -> None:
        holding.consumed_at = self._calls.now
        if outcome is None:
            holding.finish(batch)
        else:
            # the lane is free meanwhile; the offsets stay in hand until the broker has the messages
            self._session.spawn(self._return(holding, batch, outcome))

    async def _return(self, holding: Holding, batch: list[MessageView], outcome: Outcome) -> None:
        returning = [self._give_back.until_taken(holding, *failure) for failure in failures(batch, outcome)]
        if all(await asyncio.gather(*returning)):
            holding.finish(batch)
        else:
            holding.release()


class BroadcastDelivery:
    """As above, but nobody keeps a message that failed: it is reported, and that is all."""

    in_order = False

    def __init__(self, calls: Calls, namespace: Namespace = NO_NAMESPACE) -> None:
        self._calls = calls
        self._namespace = namespace

    def ready(self, holding: Holding) -> float:
        return 0.0

    async def deliver(self, holding: Holding, batch: list[MessageView]) -> float:
        self.end(holding, batch, await self._calls.call(*_shown(holding, batch, self._namespace)))
        return 0.0

    def begin(self, holding: Holding, batch: list[MessageView], ended: Callable[[Outcome], None]) -> None:
        self._calls.begin(*_shown(holding, batch, self._namespace), ended)

    def end(self, holding: Holding, batch: list[MessageView], outcome: Outcome) -> None:
        for message, _ in failures(batch, outcome):
            log.error("%s at %d failed; broadcasting does not try again", holding.queue, message.queue_offset)
        holding.consumed_at = self._calls.now
        holding.finish(batch)


class OrderlyDelivery:
    """One message of a queue after the other, or one batch; a failure suspends the queue and is tried again.

    Nothing of a queue is delivered while its lock does not count. A message that failed more often than allowed becomes
    a dead letter, so that the queue can go on.
    """

    in_order = True

    def __init__(
        self, calls: Calls, give_back: GiveBack, *, suspend: float, namespace: Namespace = NO_NAMESPACE
    ) -> None:
        self._calls = calls
        self._namespace = namespace
        self._give_back = give_back
        self._suspend = suspend

    def ready(self, holding: Holding) -> float:
        return 0.0 if holding.lease.counts() else UNLOCKED_PAUSE

    async def deliver(self, holding: Holding, batch: list[MessageView]) -> float:
        failed = list(
            failures(
                batch,
                await self._calls.call(*_shown(holding, batch, self._namespace)),
            )
        )
        holding.consumed_at = self._calls.now
        if failed and not await self._give_up(holding, failed):
            # all of it again: a later message must not overtake an earlier one
            holding.take_back(batch, [message.tried_again() for message in batch])
            return self._suspend
        holding.finish(batch)
        return 0.0

    async def _give_up(self, holding: Holding, failed: list[tuple[MessageView, Retry]]) -> bool:
        """Make dead letters of what failed, if all of it has failed often enough."""
        if any(retry != NEVER and message.reconsume_times < self._give_back.max_retries for message, retry in failed):
            return False
        try:
            for message, _ in failed:
                await self._give_back.once(holding, message, NEVER)
        except RemoteError as error:
            log.warning("%s keeps a message that it should give up: %s", holding.queue, error)
            return False
        return True
